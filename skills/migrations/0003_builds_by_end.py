from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('skills', '0002_initial'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='build',
            index=models.Index(fields=['space', 'finished_at'], name='skills_buil_space_i_c44366_idx'),
        ),
    ]
