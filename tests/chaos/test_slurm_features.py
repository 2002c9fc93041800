"""What runs on hosts runs in a Slurm pool exactly as there: the tests of features, over a cluster of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import slurm as slurm_rig
from tests.rig import parts, slurm_login
from tests.rig.stack import Stack
from tests.whole import test_command, test_core_api, test_pause

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.hosts,
    pytest.mark.skipif(not slurm_rig.installed(), reason="Debian's Slurm is not installed"),
]

#: gangs, their logs by rank, adaptive_asha, charts, checkpoints
test_the_ladder_runs_under_both_names = test_core_api.test_the_ladder_runs_under_both_names
#: pause and resume
test_a_paused_training_goes_on_elsewhere = (
    test_pause.test_a_paused_training_goes_on_elsewhere_with_its_checkpoint
)
#: interactive tasks
test_a_killed_command_leaves_nothing = test_command.test_a_killed_command_leaves_nothing_and_its_slot_is_free
test_a_port_of_a_command_is_used = test_command.test_a_port_of_a_command_is_used_through_the_server
test_ssh_reaches_into_a_shell = test_command.test_ssh_reaches_into_a_shell_and_ends_with_it


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Two nodes with two slots each."""
    with (
        parts.private_folder("slurm") as folder,
        slurm_login.slurm_stack(folder, 2, 2, test_command.SETTINGS) as (stack, _),
    ):
        yield stack
