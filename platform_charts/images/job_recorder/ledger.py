"""The records of the jobs that are not over: which object belongs to which job, and when a record is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from .bounds import bounded
from .document import Record
from .fold import JOB_LABEL, Object, new_record, with_cluster, with_event, with_job, with_workload, without_job
from .pods import NodeFacts, ends, has_ended, with_node, with_pod

_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the UID of its job (Kueue, constants.JobUIDLabel)."""

_MOST_ORPHANS = 2000
"""Objects that are kept until the job is seen that they belong to: the watches of the kinds know nothing of each other."""

_WRITE_SECONDS = 10.0
"""Between two writes of a record, unless something has ended."""

_EVENTS_SECONDS = 3600.0
_LONGEST_END = 900.0
"""Seconds after the end of a job in which pods may still be seen to end; a node that is gone takes five minutes."""


@dataclass(kw_only=True)
class _Page:
    """A record, and what has become of it since it was written."""

    record: Record
    is_changed: bool = False
    is_urgent: bool = False
    written: float = -_WRITE_SECONDS
    paused_until: float = 0.0
    changed: float = 0.0
    over: float | None = None


class Ledger:
    """Records by the UID of their job.

    Args:
        node: reads the facts of a node by its name.
        settle: seconds after the end of a job and the last change of its record until the record is complete.
    """

    def __init__(self, *, node: Callable[[str], NodeFacts], settle: float = 90.0) -> None:
        self._node = node
        self._settle = settle
        self._pages: dict[str, _Page] = {}
        self._owners: dict[str, str] = {}
        self._known_ends: set[str] = set()
        self._orphans: deque[tuple[str, Object, bool]] = deque(maxlen=_MOST_ORPHANS)

    def restore(self, record: Record) -> None:
        """Take up a record that an earlier process has written."""
        self._pages[record["uid"]] = _Page(record=record)
        workload = [record["workload"]["uid"]] if record["workload"] else []
        for uid in (record["uid"], *record["clusters"], *record["pods"], *workload):
            self._owners[uid] = record["uid"]

    def ignore(self, uid: str) -> None:
        """Leave a job alone whose record is complete."""
        self._known_ends.add(uid)

    def see(self, kind: str, found: Object, *, is_gone: bool, at: float, clock: float) -> None:
        """Fold an object as the API server has it, or had it when it was deleted.

        Args:
            kind: of the object, e.g. `Pod`.
            found: the object.
            is_gone: whether it was deleted.
            at: Unix time.
            clock: seconds of a monotonic clock.
        """
        if not self._fold(kind, found, is_gone=is_gone, at=at, clock=clock):
            self._orphans.append((kind, found, is_gone))
        elif kind != "Event":
            # An orphan may be what another one waits for, as a pod is for its events.
            while self._orphans and self._adopt(at=at, clock=clock):
                pass

    def _adopt(self, *, at: float, clock: float) -> bool:
        """Fold the orphans whose job is known by now; returns whether there was one."""
        waiting, self._orphans = self._orphans, deque(maxlen=_MOST_ORPHANS)
        for kind, found, is_gone in waiting:
            if not self._fold(kind, found, is_gone=is_gone, at=at, clock=clock):
                self._orphans.append((kind, found, is_gone))
        return len(self._orphans) < len(waiting)

    def listed(self, kind: str, namespace: str, uids: Iterable[str], *, at: float, clock: float) -> None:
        """Note that a namespace has these objects of a kind and no others: what was deleted unseen is gone."""
        present, now = set(uids), stamp(at)
        for page in [one for one in self._pages.values() if one.record["namespace"] == namespace]:
            record = page.record
            if kind == "RayJob" and record["uid"] not in present:
                record = without_job(record, now=now)
            for uid, pod in record["pods"].items():
                if kind == "Pod" and uid not in present and not pod["gone"]:
                    record = {**record, "pods": {**record["pods"], uid: {**pod, "gone": now}}}
            for uid, cluster in record["clusters"].items():
                if kind == "RayCluster" and uid not in present and not cluster["gone"]:
                    record = {**record, "clusters": {**record["clusters"], uid: {**cluster, "gone": now}}}
            self._note(page, record, clock=clock, is_urgent=True)

    def due(self, clock: float) -> Iterator[Record]:
        """The records to write now: those that have changed, at once where something has ended."""
        for page in self._pages.values():
            is_due = page.is_urgent or clock - page.written >= _WRITE_SECONDS
            if page.is_changed and is_due and clock >= page.paused_until:
                yield page.record

    def written(self, uid: str, *, clock: float) -> None:
        """Note that a record was written as it is, so that the next write waits."""
        page = self._pages[uid]
        page.is_changed = page.is_urgent = False
        page.written = clock

    def failed(self, uid: str, *, clock: float) -> None:
        """Note that a record could not be written; it is tried again after a while."""
        self._pages[uid].paused_until = clock + _WRITE_SECONDS

    def complete(self, clock: float) -> list[Record]:
        """The records of jobs that are over, once nothing more is to be expected of them."""
        return [page.record for page in self._pages.values() if self._is_complete(page, clock)]

    def forget(self, uid: str) -> None:
        """Drop a record that is complete and written."""
        del self._pages[uid]
        self._owners = {one: owner for one, owner in self._owners.items() if owner != uid}
        self.ignore(uid)

    def _is_complete(self, page: _Page, clock: float) -> bool:
        if page.over is None or page.is_changed or clock < page.paused_until:
            return False
        if clock - max(page.over, page.changed) < self._settle:
            return False
        return all(map(has_ended, page.record["pods"].values())) or clock - page.over >= _LONGEST_END

    def _note(self, page: _Page, record: Record, *, clock: float, is_urgent: bool) -> None:
        if record is not page.record:
            page.record = bounded(record)
            page.is_changed, page.is_urgent, page.changed = True, page.is_urgent or is_urgent, clock
        if not record["ended"]:
            page.over = None
        elif page.over is None:
            page.over = clock

    def _fold(self, kind: str, found: Object, *, is_gone: bool, at: float, clock: float) -> bool:
        """Fold an object into its record; False if its job is not known yet."""
        uid, now = found["metadata"]["uid"], stamp(at)
        owner = self._owner(kind, found)
        if owner is None:
            return False
        if owner in self._known_ends:
            return True
        if kind == "RayJob":
            if owner not in self._pages and _is_long_over(found, at):
                self.ignore(owner)
                return True
            page = self._pages.setdefault(owner, _Page(record=new_record(found)))
            self._owners[uid] = owner
            after = with_job(page.record, found, now=now)
            after = without_job(after, now=now) if is_gone else after
            self._note(page, after, clock=clock, is_urgent=after["ending"] != page.record["ending"])
            return True
        page = self._pages[owner]
        if kind == "Pod":
            self._fold_pod(page, found, gone=now if is_gone else "", clock=clock)
        elif kind == "RayCluster":
            after = with_cluster(page.record, found, gone=now if is_gone else "")
            self._note(page, after, clock=clock, is_urgent=False)
        elif kind == "Workload":
            self._note(page, with_workload(page.record, found), clock=clock, is_urgent=False)
        elif not is_gone:  # an Event expires
            self._note(page, with_event(page.record, found), clock=clock, is_urgent=False)
        if kind != "Event":
            self._owners[uid] = owner
        return True

    def _fold_pod(self, page: _Page, pod: Object, *, gone: str, clock: float) -> None:
        uid = pod["metadata"]["uid"]
        before = page.record["pods"].get(uid)
        record = with_pod(page.record, pod, gone=gone)
        after = record["pods"][uid]
        has_news = before is None or ends(before) != ends(after)
        if after["node"] and (has_news or (before is not None and not before["node"])):
            record = with_node(record, uid, self._node(after["node"]))
        self._note(page, record, clock=clock, is_urgent=before is not None and has_news)

    def _owner(self, kind: str, found: Object) -> str | None:
        """UID of the job that an object belongs to; None if no such job was seen yet."""
        metadata = found["metadata"]
        if kind == "RayJob":
            return str(metadata["uid"])
        if kind == "Event":
            return self._owner_of_event(found)
        labels = metadata.get("labels") or {}
        if kind == "Pod":
            return self._owner_of_pod(metadata["namespace"], labels.get(JOB_LABEL, ""), metadata["creationTimestamp"])
        if kind == "Workload":
            claimed = labels.get(_UID_LABEL, "")
        else:
            owners = metadata.get("ownerReferences") or ()
            claimed = next((one["uid"] for one in owners if one["kind"] == "RayJob"), "")
        return claimed if claimed in self._pages or claimed in self._known_ends else None

    def _owner_of_pod(self, namespace: str, job: str, created: str) -> str | None:
        """The newest submission of that name that is not younger than the pod."""
        known = [one.record for one in self._pages.values() if one.record["namespace"] == namespace]
        named = sorted((one for one in known if one["name"] == job), key=lambda one: one["created"])
        older = [one for one in named if one["created"] <= created]
        return older[-1]["uid"] if older else None

    def _owner_of_event(self, event: Object) -> str | None:
        about = event.get("involvedObject") or {}
        if (owner := self._owners.get(about.get("uid", ""))) is not None:
            return owner
        if about.get("kind") != "Job":  # of the submitter, which KubeRay gives the RayJob's name
            return None
        created = event["metadata"].get("creationTimestamp") or ""
        return self._owner_of_pod(about.get("namespace", ""), about.get("name", ""), created)


def _is_long_over(job: Object, at: float) -> bool:
    """Whether nothing is left of a job that this program has not recorded: events are kept for an hour."""
    ended = (job.get("status") or {}).get("endTime") or ""
    return bool(ended) and ended < stamp(at - _EVENTS_SECONDS)


def stamp(at: float) -> str:
    """A Unix time as the API server writes it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
