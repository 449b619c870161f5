"""Reasons of Kubernetes' events, in lower case, and what they say of a pod or a job."""

from __future__ import annotations

from taut.read.jobs import job_words as words

ENDS = {
    "preempted": words.PREEMPTED, "preempting": words.PREEMPTED, "evicted": words.PREEMPTED, "evict": words.PREEMPTED,
    "taintmanagereviction": words.NODE_FAILED, "nodenotready": words.NODE_FAILED, "nodelost": words.NODE_FAILED,
    "nodeshutdown": words.NODE_FAILED, "terminated": words.FAILED,
    "oomkilling": words.OUT_OF_MEMORY, "oomkilled": words.OUT_OF_MEMORY, "systemoom": words.OUT_OF_MEMORY,
    "backoff": words.FAILED, "crashloopbackoff": words.FAILED, "podfailed": words.FAILED, "exitedwithcode": words.FAILED,
    "backofflimitexceeded": words.FAILED, "failed": words.FAILED, "jobfailed": words.FAILED, "pytorchjobfailed": words.FAILED,
    "failedpoststarthook": words.FAILED, "deadlineexceeded": words.TIMED_OUT, "killing": words.CANCELLED,
    "suspended": words.CANCELLED, "successfuldelete": words.CANCELLED,
    "pytorchjobrestarting": words.FAILED, "jobrestarting": words.FAILED, "restarting": words.FAILED,
    "completed": words.COMPLETED, "pytorchjobsucceeded": words.COMPLETED, "jobsucceeded": words.COMPLETED,
    "succeeded": words.COMPLETED,
}  # fmt: skip
"""Reasons that end an attempt, in lower case, and how."""
LOOPS = ("backoff", "crashloopbackoff", "failed")
"""Reasons of a container that is started again in its pod, which stays where it is."""
RELEASES = frozenset(ENDS) - {*LOOPS, "oomkilling", "oomkilled", "systemoom", "failedpoststarthook", "terminated"}
"""Reasons with which pods give their nodes back."""
BLOCKS = frozenset(
    {
        "failedscheduling",
        "failedmount",
        "failedattachvolume",
        "failedcreatepodsandbox",
        "failedcreatepodcontainer",
        "failedcreate",
        "failedbinding",
        "errimagepull",
        "imagepullbackoff",
        "errimageneverpull",
        "inspectfailed",
        "invalidimagename",
        "createcontainerconfigerror",
        "createcontainererror",
        "networknotready",
        "unexpectedadmissionerror",
        "nottriggerscaleup",
        "outofnvidia.com/gpu",
        "outofcpu",
        "outofmemory",
        "provisioningfailed",
    }
)
"""Reasons for which a pod does not get to run."""
UNBOUND = ("failedscheduling", "nottriggerscaleup", "failedbinding", "provisioningfailed")
"""Those of a pod that is on no node yet."""
ON_NODE = BLOCKS - {*UNBOUND, "failedcreate"} | set(LOOPS)
"""Reasons that only a node gives, whether it is named or not."""
QUEUES = ("successfulcreate", "created job", "pytorchjobcreated", "scheduled", "suspended", "queued")
"""Reasons that show that a job waits."""
BEGINS = ("started", "created", "pytorchjobrunning", "jobrunning")
VAGUE = (words.CANCELLED, words.FAILED)
"""Outcomes that a later event may correct."""
OF_ATTEMPTS = frozenset((*ENDS, *QUEUES, *BEGINS, *BLOCKS))
