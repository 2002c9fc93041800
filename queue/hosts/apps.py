from django.apps import AppConfig


class HostsConfig(AppConfig):
    name = "hosts"

    def ready(self) -> None:
        from accounts import users  # models, which are there by now
        from hosts import login_accounts

        users.accounts_changed.connect(login_accounts.accounts_changed, dispatch_uid="hosts and accounts")
