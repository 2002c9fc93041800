"""The ranks' collectives, between real processes."""

import os
import pickle
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.rig.ports import free_port
from tests.trainmaster.made_run import SECRET, Ranks, make_run, records, said
from trainmaster.core._wire import NotAPeer, accept_worker, greet_chief


def test_values_travel_between_four_ranks_of_two_hosts(tmp_path: Path) -> None:
    port = free_port()
    runs = [
        make_run(tmp_path / str(member), slots=2, member=member, members=2, comm=port) for member in (0, 1)
    ]
    program = """
        context = distributed()
        say([context.gather(rank), context.allgather({"rank": rank}), context.broadcast(rank + 7),
             context.gather_local(rank), context.allgather_local(rank), context.broadcast_local(rank)])
        say(len(context.allgather(b"x" * 3_000_000)))
        context.close()
    """
    with Ranks(program, runs, 4) as ranks:
        answers = said(ranks)
    everybody = [{"rank": rank} for rank in range(4)]
    for rank, (values, large) in enumerate(answers):
        host = [0, 1] if rank < 2 else [2, 3]
        assert values == [
            [0, 1, 2, 3] if rank == 0 else None,
            everybody,
            7,
            host if rank in (0, 2) else None,
            host,
            host[0],
        ]
        assert large == 4


def test_ranks_of_two_hosts_meet_over_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    port = free_port()
    runs = [
        make_run(tmp_path / str(member), slots=1, member=member, members=2, comm=port) for member in (0, 1)
    ]
    program = """
        context = det.core.DistributedContext(rank=rank, size=2, local_rank=0, local_size=1,
            cross_rank=rank, cross_size=2, chief_ip="::1")
        say(context.allgather(rank))
        context.close()
    """
    with Ranks(program, runs, 2) as ranks:
        assert said(ranks) == [[[0, 1]], [[0, 1]]]


def test_a_killed_rank_is_named_by_all_others_at_once(tmp_path: Path) -> None:
    run = make_run(tmp_path, slots=4)
    program = """
        context = distributed()
        context.allgather(0)
        if rank == 2 and os.fork() == 0:  # a data loader, which outlives its rank
            sys.stdin.read()
            os._exit(0)
        say("joined")
        if rank == 2:
            sys.stdin.read()
        if rank == 1:  # waits for a chief that is busy elsewhere
            start = time.monotonic()
            try: context.broadcast(None)
            except RuntimeError as error: say([str(error), time.monotonic() - start])
        elif rank == 0:
            sys.stdin.readline()
            try: context.allgather(None)
            except RuntimeError as error: say([str(error), 0])
        else:
            try: context.allgather(None)
            except RuntimeError as error: say([str(error), 0])
    """
    with Ranks(program, [run], 4) as ranks:
        for process in ranks.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == '"joined"\n'
        ranks.processes[2].send_signal(signal.SIGKILL)
        for rank in (1, 3, 0):
            out, err = ranks.processes[rank].communicate(timeout=60)
            assert "Rank 2 (127.0.0.1) was lost" in out, err


def test_ranks_that_are_out_of_step_are_told_so(tmp_path: Path) -> None:
    program = """
        context = distributed()
        try: context.gather(1) if rank == 0 else context.allgather(1)
        except RuntimeError as error: say(str(error))
    """
    with Ranks(program, [make_run(tmp_path, slots=2)], 2) as ranks:
        answers = said(ranks)
    assert all("out of step" in answer for [answer] in answers)


def test_a_rank_with_another_secret_is_refused_and_the_group_goes_on(tmp_path: Path) -> None:
    port = free_port()
    good = make_run(tmp_path / "good", slots=2, comm=port)
    stranger = make_run(tmp_path / "bad", slots=2, comm=port)
    spec = (stranger / "spec.json").read_text().replace(SECRET, "00" * 32)
    (stranger / "spec.json").write_text(spec)
    program = "context = distributed(); say(context.allgather(rank)); context.close()"
    with Ranks(program, [good], 2) as ranks:
        ranks.processes[1].send_signal(signal.SIGSTOP)  # the stranger comes first
        with Ranks("rank, size, per_host = 1, 2, 2\ndistributed()", [stranger], 1) as refused:
            [(code, _, err)] = refused.results()
        assert code == 1
        assert "secret is not the same" in err
        ranks.processes[1].send_signal(signal.SIGCONT)
        assert said(ranks) == [[[0, 1]], [[0, 1]]]


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (os.mkdir, (str(self.path),))


def test_nothing_is_unpickled_from_a_stranger(tmp_path: Path) -> None:
    port = free_port()
    run = make_run(tmp_path / "run", slots=2, comm=port)
    program = "context = distributed(); say(context.allgather(rank)); context.close()"
    with Ranks(program, [run], 2) as ranks:
        ranks.processes[1].send_signal(signal.SIGSTOP)
        with _connected(port) as sock:
            sock.sendall(pickle.dumps(_Bomb(tmp_path / "burst")) * 10)
            sock.settimeout(60)
            with pytest.raises(ConnectionError):
                while sock.recv(100):
                    pass
                raise ConnectionError("closed")
        ranks.processes[1].send_signal(signal.SIGCONT)
        assert said(ranks) == [[[0, 1]], [[0, 1]]]
    assert not (tmp_path / "burst").exists()


def test_a_repeated_or_changed_frame_is_refused() -> None:
    for tamper in (lambda frame: frame + frame, lambda frame: frame[:-1] + b"?"):
        ours, theirs = _connection()
        sent, spied = _connection()
        worker = _handshake(ours, theirs)
        frame = _bytes_of_one_frame(worker[1], ours, sent, spied)
        ours.sendall(tamper(frame))
        with pytest.raises(NotAPeer):
            worker[0].receive()
            worker[0].receive()


def _connected(port: int) -> socket.socket:
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            assert time.monotonic() < until


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


def _handshake(worker: socket.socket, chief: socket.socket):  # type: ignore[no-untyped-def]
    """(the chief's wire, the worker's wire)."""
    found = []
    thread = threading.Thread(target=lambda: found.append(accept_worker(chief, b"secret")))
    thread.start()
    wire = greet_chief(worker, b"secret", 1, 2)
    thread.join()
    return found[0][0], wire


def _bytes_of_one_frame(wire, own: socket.socket, other: socket.socket, spied: socket.socket) -> bytes:  # type: ignore[no-untyped-def]
    """What the worker's wire would put on its connection, caught on another one."""
    wire._sock = other
    wire.send(b"payload")
    wire._sock = own
    return spied.recv(1000)


def test_all_ranks_get_the_same_answer_to_should_preempt(tmp_path: Path) -> None:
    run = make_run(tmp_path, slots=4)
    program = """
        with det.core.init(distributed=distributed()) as context:
            step = 0
            while not context.preempt.should_preempt():
                step += 1
                if rank == 0 and step == 50: print('"running"', flush=True)
            say(step)
    """
    with Ranks(program, [run], 4) as ranks:
        chief = ranks.processes[0]
        assert chief.stdout is not None
        assert chief.stdout.readline() == '"running"\n'
        (run / "control" / "preempt.json").write_text('{"reason": "pause"}')
        steps = {values[-1] for values in said(ranks)}
    assert len(steps) == 1
    assert [record["type"] for record in records(run)] == ["preempt_asked", "preempt_ack"]
    assert records(run, 1) == []


def test_a_worker_alone_may_not_ask_in_chief_only_mode(tmp_path: Path) -> None:
    program = """
        mode = det.core.PreemptMode.ChiefOnly
        with det.core.init(distributed=distributed(), preempt_mode=mode) as context:
            try: say(context.preempt.should_preempt())
            except RuntimeError as error: say("refused")
    """
    with Ranks(program, [make_run(tmp_path, slots=2)], 2) as ranks:
        assert said(ranks) == [[False], ["refused"]]
