"""A trial whose ranks have written a long log, as rows of a running server: for tests of the viewer and benchmarks."""

from tests.rig.server import Server

#: 10:00 UTC; line n was written n hundredths of a second later.
BEGIN = 1_795_255_200.0

_FILL = """
from logs import store
from logs.lines import Block
from logs.models import TaskLog
from tests.rig import trial_rows

NAME, NUMBER, RANKS, STATE, ODD = {name!r}, {number}, {ranks}, {state!r}, {odd!r}
trial = trial_rows.add(NAME, STATE)
task = trial.task

def line(number):
    if number in ODD:
        return ODD[number]
    if number % 1000 == 0:
        return f"WARNING dataloader: worker {{number % 7}} took 3.1 s for batch {{number}}"
    return f"step {{number}} loss {{2 - number / 1e7:.5f}} lr 2.8e-4 {{5000 + number % 300}} tok/s"

EACH, TOGETHER = 25, 4000
for begin in range(1, NUMBER + 1, TOGETHER):
    blocks, part = [], begin // TOGETHER % 2
    for first in range(begin, min(begin + TOGETHER, NUMBER + 1), EACH):
        numbers = range(first, min(first + EACH, NUMBER + 1))
        levels = [(index, "WARNING") for index, number in enumerate(numbers) if number % 1000 == 0]
        rank = part * (RANKS // 2) + first // EACH % max(1, RANKS // 2)
        blocks.append(Block({clock} + first / 100, rank, "stdout" if first // EACH % 9 else "stderr",
                            levels, [], "\\n".join(line(number) for number in numbers)))
    store.append(task.pk, None, f"gpu-{{part + 1}}", blocks)
TaskLog.objects.get_or_create(task=task)
print(trial.pk)
"""


def write(
    server: Server,
    number: int,
    *,
    name: str = "long",
    ranks: int = 8,
    state: str = "COMPLETED",
    odd: dict[int, str] | None = None,
) -> int:
    """The id of a trial with so many lines, 25 of a rank together, the lower half of the ranks on gpu-1.

    `odd` has the texts of some lines by number.
    """
    code = _FILL.format(number=number, name=name, ranks=ranks, state=state, odd=odd or {}, clock=BEGIN)
    return int(server.shell(code))
