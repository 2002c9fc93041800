"""Which trials an experiment makes and stops: events in, operations out. Pure Python, state in plain JSON.

state, operations = start(config["searcher"], config["hyperparameters"], seed)
state, operations = on_event(state, TrialExited(request_id, ExitReason.COMPLETED))
"""

from searching.events import Again as Again
from searching.events import BadSearch as BadSearch
from searching.events import Create as Create
from searching.events import Event as Event
from searching.events import ExitReason as ExitReason
from searching.events import Judgment as Judgment
from searching.events import Operation as Operation
from searching.events import Park as Park
from searching.events import Promote as Promote
from searching.events import Shutdown as Shutdown
from searching.events import Stop as Stop
from searching.events import TrialExited as TrialExited
from searching.events import ValidationReported as ValidationReported
from searching.halving import max_time as max_time
from searching.search import advance as advance
from searching.search import compares as compares
from searching.search import has_length as has_length
from searching.search import on_event as on_event
from searching.search import parked as parked
from searching.search import partly_done as partly_done
from searching.search import progress as progress
from searching.search import revive as revive
from searching.search import start as start
from searching.state import upgraded as upgraded
