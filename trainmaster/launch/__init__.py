"""Start a trial's ranks on each of its hosts: `python3 -m trainmaster.launch.torch_distributed train.py`."""
