from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0003_two_step_and_sign_ins'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='hides_first_steps',
            field=models.BooleanField(default=False),
        ),
    ]
