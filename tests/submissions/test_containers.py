"""What of a config becomes a container."""

import pytest

from submissions.config.containers import bytes_of, container_of, image_of


def test_an_image_that_somebody_chose_brings_its_mounts_and_devices() -> None:
    mount = {"host_path": "/d", "container_path": "/d", "read_only": False, "propagation": "rprivate"}
    config = {
        "environment": {"image": {"cpu": "team/cpu", "cuda": "team/gpu"}, "force_pull_image": True},
        "bind_mounts": [mount],
        "resources": {"shm_size": "4g", "devices": []},
    }
    found = container_of(config, "cuda")
    assert found is not None and found["image"] == "team/gpu" and found["force_pull"] is True
    assert (found["mounts"], found["shm_size"], found["registry_auth"]) == ([mount], 4 * 1024**3, None)
    assert container_of({"environment": {"image": None}}, "cpu") is None


def test_the_images_of_determined_itself_are_not_asked_for() -> None:
    for name in (
        "determinedai/environments:cuda-11.3-pytorch-1.10",
        "docker.io/determinedai/pytorch-ngc:0.38.1",
    ):
        assert image_of({"image": {"cpu": name}}, "cpu") is None
    assert (
        image_of({"image": {"cpu": "mirror.example/determinedai/x"}}, "cpu")
        == "mirror.example/determinedai/x"
    )


@pytest.mark.parametrize(
    ("written", "size"),
    [(None, None), (5, 5), ("4g", 2**32), ("512 MiB", 2**29), ("1.5k", 1536), ("10b", 10), ("10", 10)],
)
def test_a_memory_size_is_read_as_docker_reads_it(written: int | str | None, size: int | None) -> None:
    assert bytes_of(written) == size
