import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0005_session_id_length'),
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Sampling',
            fields=[
                ('at', models.DateTimeField(primary_key=True, serialize=False)),
            ],
            options={
                'ordering': ['at'],
            },
        ),
        migrations.AddField(
            model_name='backend',
            name='check_took_ms',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='backend',
            name='currency',
            field=models.CharField(blank=True, max_length=3),
        ),
        migrations.AddField(
            model_name='reconcilereport',
            name='oldest_orphan_s',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.CreateModel(
            name='SessionSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('active', models.PositiveIntegerField(default=0)),
                ('paused', models.PositiveIntegerField(default=0)),
                ('lost', models.PositiveIntegerField(default=0)),
                ('backend', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='fleet.backend')),
                ('sampling', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='samples', to='fleet.sampling')),
                ('space', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.space')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('sampling', 'space', 'backend'), name='sampled_once')],
            },
        ),
    ]
