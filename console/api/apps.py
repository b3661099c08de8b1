from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "console.api"
    label = "api"

    def ready(self) -> None:
        # Registers itself with drf-spectacular.
        from console.api import schema  # noqa: F401
