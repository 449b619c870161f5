"""One event of Kubernetes, as the core or the newer group of events writes it."""

from __future__ import annotations

import msgspec

from taut.core.array_types import Json
from taut.read.jobs.job_words import count_or_null, cut


class Object(msgspec.Struct, gc=False):
    """What an event is about."""

    kind: Json = None
    name: Json = None
    namespace: Json = None
    uid: Json = None
    fieldPath: Json = None


class Source(msgspec.Struct, gc=False):
    """Who saw it, and where."""

    host: Json = None
    component: Json = None


class Series(msgspec.Struct, gc=False):
    """An event that came again."""

    count: Json = None
    lastObservedTime: Json = None


class Metadata(msgspec.Struct, gc=False):
    """When the event was first written down."""

    creationTimestamp: Json = None


class Event(msgspec.Struct, gc=False):
    """An event of the core, or of the newer group that calls its object ``regarding`` and its message ``note``."""

    involvedObject: Object | None = None
    regarding: Object | None = None
    note: Json = None
    deprecatedFirstTimestamp: Json = None
    deprecatedLastTimestamp: Json = None
    deprecatedSource: Source | None = None
    deprecatedCount: Json = None
    reason: Json = None
    message: Json = None
    firstTimestamp: Json = None
    lastTimestamp: Json = None
    eventTime: Json = None
    count: Json = None
    source: Source | None = None
    series: Series | None = None
    reportingComponent: Json = None
    reportingController: Json = None
    reportingInstance: Json = None
    metadata: Metadata | None = None
    kind: Json = None
    items: list[Event] = []
    object: Event | None = None
    event: Event | None = None

    def plain(self) -> Event:
        """The same in the words of the core."""
        if self.regarding is not None:
            self.involvedObject, self.message = self.regarding, self.note
            self.firstTimestamp = self.firstTimestamp or self.deprecatedFirstTimestamp
            self.lastTimestamp = self.lastTimestamp or self.deprecatedLastTimestamp
            self.source = self.source or self.deprecatedSource
            self.count = self.count or self.deprecatedCount
        return self

    @property
    def word(self) -> str:
        """The reason in lower case."""
        return self.reason.lower() if isinstance(self.reason, str) else ""

    @property
    def text(self) -> str:
        """The message."""
        return self.message if isinstance(self.message, str) else ""

    @property
    def occurred(self) -> int:
        """How often it came, at least once."""
        if self.series is None and self.count is None:
            return 1
        series = self.series.count if self.series is not None else None
        return max(1, count_or_null(self.count), count_or_null(series))

    @property
    def created(self) -> Json:
        """When it was written down first."""
        return self.metadata.creationTimestamp if self.metadata is not None else None

    @property
    def of_pod(self) -> bool:
        """Whether it is about a pod."""
        return self.involvedObject is not None and self.involvedObject.kind == "Pod"

    @property
    def namespace(self) -> str:
        """Where its object lies."""
        return cut(self.involvedObject.namespace) if self.involvedObject is not None else ""

    @property
    def host(self) -> str:
        """The node on which it was seen; empty if it does not say."""
        if self.source is not None and isinstance(self.source.host, str) and self.source.host:
            return self.source.host
        kubelet = self.reportingComponent == "kubelet" or self.reportingController == "kubelet"
        return self.reportingInstance if kubelet and isinstance(self.reportingInstance, str) else ""
