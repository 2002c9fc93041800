"""Every pair once, nobody twice at a time; what a check changes, and what ends with a host."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.refusals import Refusal
from hosts import pair_checks, registry
from hosts.models import Host, PairCheck, PairSearch, PoolChange, ResourcePool
from hosts.pair_checks import PairFound
from hosts.pools import default_pool

pytestmark = pytest.mark.django_db

BAD = PairFound(False, "gpu1 cannot reach gpu0 at 10.0.0.1: timed out.")
GOOD = PairFound(True, "They connect over 10.0.0.0/24 (eth0): 0.1 ms, 3.0 GB/s.", interface="eth0")


def hosts(pool: ResourcePool, count: int) -> list[Host]:
    return [
        Host.objects.create(
            name=f"gpu{n}", pool=pool, address=f"10.0.0.{n + 1}", admission=Host.Admission.READY
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 13])
def test_every_pair_meets_once_and_no_host_is_in_two_pairs_of_a_batch(count: int) -> None:
    batches = pair_checks.batches(count, 3)
    pairs = [pair for batch in batches for pair in batch]
    assert sorted(pairs) == [(one, other) for one in range(count) for other in range(one + 1, count)]
    for batch in batches:
        places = [place for pair in batch for place in pair]
        assert 0 < len(places) == len(set(places)) <= 6


def test_a_pair_that_turns_bad_or_good_is_news_for_the_next_pass() -> None:
    pool = default_pool()
    first, second = hosts(pool, 2)
    pair_checks.note(second, first, GOOD)
    assert not PoolChange.objects.exists()
    for found, news in ((BAD, 1), (BAD, 1), (GOOD, 2), (GOOD, 2)):
        pair_checks.note(first, second, found)
        assert PoolChange.objects.filter(pool=pool).count() == news
    (check,) = pair_checks.of_pool(pool)
    assert check.ok and check.sentence == GOOD.sentence


def test_a_search_goes_batch_by_batch_and_one_worker_at_a_time_does_one() -> None:
    pool = default_pool()
    hosts(pool, 3)
    search = pair_checks.begin(pool, actor="user:ann")
    assert pair_checks.begin(pool, actor="user:bob").asked_by == "ann", "one search at a time"
    assert search.pairs == 3
    met = []
    for done in (1, 2, 3):
        assert pair_checks.forgotten() == [pool.pk]
        mine = pair_checks.claim(pool.pk, 60)
        assert mine is not None and pair_checks.claim(pool.pk, 60) is None and not pair_checks.forgotten()
        met += [{first.name, second.name} for first, second in pair_checks.next_batch(mine)]
        pair_checks.batch_done(mine, [])
        assert PairSearch.objects.get(pool=pool).done == done
    assert len(met) == 3 and pair_checks.claim(pool.pk, 60) is None
    again = pair_checks.begin(pool, actor="user:bob")
    assert (again.asked_by, again.done) == ("bob", 0)


def test_a_batch_of_a_worker_that_died_is_done_again_and_its_late_word_counts_for_nothing() -> None:
    pool = default_pool()
    hosts(pool, 3)
    pair_checks.begin(pool, actor="user:ann")
    dead = pair_checks.claim(pool.pk, 60)
    assert dead is not None
    PairSearch.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    alive = pair_checks.claim(pool.pk, 60)
    assert alive is not None and alive.batch == dead.batch
    pair_checks.batch_done(dead, [])
    assert PairSearch.objects.get(pool=pool).done == 0
    pair_checks.batch_done(alive, [])
    assert PairSearch.objects.get(pool=pool).done == 1


def test_of_two_pools_one_is_searched_at_a_time_for_they_share_the_ports() -> None:
    pools = [default_pool(), ResourcePool.objects.create(name="other")]
    for number, pool in enumerate(pools):
        for each in range(2):
            Host.objects.create(
                name=f"{pool.name}{each}",
                pool=pool,
                address=f"10.1.{number}.{each}",
                admission=Host.Admission.READY,
            )
        pair_checks.begin(pool, actor="user:ann")
    first, second = (pool.pk for pool in pools)
    mine = pair_checks.claim(first, 60)
    assert mine is not None and pair_checks.claim(second, 60) is None
    assert pair_checks.forgotten() == [second], "it is asked for again"
    pair_checks.batch_done(mine, [])
    assert pair_checks.claim(second, 60) is not None


def test_what_is_known_of_a_host_that_is_removed_vanishes() -> None:
    pool = default_pool()
    first, second = hosts(pool, 2)
    pair_checks.note(first, second, BAD)
    registry.remove(second.pk, actor="user:ann")
    assert not PairCheck.objects.exists()


def test_one_host_is_no_pair() -> None:
    pool = default_pool()
    hosts(pool, 1)
    with pytest.raises(Refusal, match="Pool default has one ready host; a pair needs two"):
        pair_checks.begin(pool, actor="user:ann")
