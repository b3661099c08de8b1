from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0003_hash_chain'),
    ]

    operations = [
        migrations.AddField(
            model_name='auditchain',
            name='broken',
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='auditchain',
            name='verified_at',
            field=models.DateTimeField(null=True),
        ),
    ]
