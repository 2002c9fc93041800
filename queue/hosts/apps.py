from django.apps import AppConfig


class HostsConfig(AppConfig):
    name = "hosts"

    def ready(self) -> None:
        from accounts import user_groups, users  # models, which are there by now
        from hosts import group_shares, login_accounts, pool_access, pool_windows

        users.accounts_changed.connect(login_accounts.accounts_changed, dispatch_uid="hosts and accounts")
        user_groups.group_changed.connect(group_shares.group_changed, dispatch_uid="hosts and groups")
        user_groups.group_changed.connect(pool_windows.group_changed, dispatch_uid="hosts and their windows")
        user_groups.group_changed.connect(pool_access.group_changed, dispatch_uid="hosts and their groups")
