"""What people do with submitit, on Trainmaster. Prints what it has seen as JSON; the folder is its argument."""

import json
import os
import sys
import time

import submitit


def add(a, b):
    print("adding", a, b, flush=True)
    return a + b


def fail():
    raise ValueError("of its own")


def who():
    environment = submitit.JobEnvironment()
    return environment.global_rank, environment.num_tasks, environment.num_nodes, environment.job_id


class Counting(submitit.helpers.Checkpointable):
    """Counts until it is told to stop, and then says how far it had come."""

    def __init__(self, at=0):
        self.at = at

    def __call__(self):
        begun = self.at
        while not begun:
            self.at += 1
            time.sleep(0.1)
        return begun, int(os.environ["SLURM_RESTART_COUNT"])

    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(Counting(self.at))


def wait_for(job, states):
    while job.state not in states:
        time.sleep(0.5)
        job.watcher._last_status_check = 0.0  # ask again at once
    return job.state


executor = submitit.AutoExecutor(folder=sys.argv[1] + "/%j", cluster="trainmaster")
executor.update_parameters(timeout_min=10, name="tour", cpus_per_task=1)
seen = {}

job = executor.submit(add, 5, 7)
seen["id"], seen["result"], seen["stdout"] = job.job_id, job.result(), "adding 5 7" in job.stdout()
seen["state"] = wait_for(job, ("COMPLETED", "FAILED"))

jobs = executor.map_array(add, [1, 2, 3], [10, 20, 30])
seen["array"] = [job.result() for job in jobs]
seen["indices"] = [job.job_id.partition("_")[2] for job in jobs]

failed = executor.submit(fail)
try:
    failed.result()
except submitit.core.utils.FailedJobError as error:
    seen["failed"] = "ValueError: of its own" in str(error)
seen["failed state"] = wait_for(failed, ("COMPLETED", "FAILED"))

executor.update_parameters(tasks_per_node=2)
seen["tasks"] = [list(each) for each in executor.submit(who).results()]

executor.update_parameters(tasks_per_node=1, timeout_min=1, trainmaster_signal_delay_s=40)
continued = executor.submit(Counting())
seen["continued"] = list(continued.result())
seen["same id"] = continued.job_id in (continued.paths.result_pickle.name)

executor.update_parameters(timeout_min=10)
canceled = executor.submit(time.sleep, 600)
wait_for(canceled, ("RUNNING",))
canceled.cancel()
canceled.wait()
seen["canceled"] = wait_for(canceled, ("CANCELLED",))

executor.update_parameters(nodes=2)
try:
    executor.submit(add, 1, 2)
except submitit.core.utils.FailedJobError as error:
    seen["gang"] = str(error)

print(json.dumps(seen))
