from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "console.fleet"
    label = "fleet"

    def ready(self) -> None:
        from console.fleet.sessions import mark_switched
        from skills import ports

        ports.on_switch.append(mark_switched)
