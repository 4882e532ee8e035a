"""Kubernetes CronJobs: manifests of one or several documents, and lists of them."""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from app.domain.field_errors import field_errors
from app.domain.labels import MOST_LABELS, Labels
from app.domain.limits import DEFAULT_CAPS
from app.domain.local_time import canonical_zone
from app.services.declarations.yaml_text import Document, read_documents
from app.services.imports.conversion import Conversion, Job, Notices
from app.services.imports.cron_timing import Timing, read_timing

API_GROUP = "batch/"
IF_RUNNING = {"Allow": "allow", "Forbid": "skip", "Replace": "cancel"}
# The values that Kubernetes uses where a manifest is silent.
BACKOFF_LIMIT = 6
BACKOFF_BASE_SECONDS = 10
# Without a deadline Kubernetes starts the latest missed run however late it is.
HOWEVER_LATE_SECONDS = 365 * 86_400

NO_DEADLINE = "startingDeadlineSeconds is not set: a run may start up to a year late (misfire_grace_seconds)."
NO_TIMEOUT = "activeDeadlineSeconds is not set: a run is given up after 600 seconds, unless timeout_seconds is added."
NO_TIMEZONE = "timeZone is not set, so it is UTC. Name the timezone of the cluster with --timezone."
POD = "the pod is not run: {image} and its command are written to trigger_payload, for a workflow to use."
MORE_CONTAINERS = "only the first container is written to trigger_payload, not {names}."
NOT_LABELS = f"the labels are left out: they are not labels of Kubernetes, or more than {MOST_LABELS}."
NO_COUNTERPART = "`{field}` has no counterpart."

_KNOWN_SPEC = {"schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "jobTemplate"}
_KNOWN_JOB = {"backoffLimit", "activeDeadlineSeconds", "template"}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S*)\s+(.*)", re.DOTALL)
_STEP = re.compile(r"[*?]/(?!1$)")
_STARS = {"*", "?", "*/1"}


class Manifest(msgspec.Struct, frozen=True):
    """An object within a document."""

    document: Document
    within: str
    value: Any

    @property
    def line(self) -> int:
        """Return the line of the object."""
        return self.document.line_of(self.within)

    def line_of(self, field: str) -> int:
        """Return the line of a field, or of the object if the field is not there."""
        return self.document.line_of(f"{self.within}.{field}" if self.within else field)


def read_cronjobs(text: str, timezone: str | None) -> Conversion:
    """Return the schedules of CronJob manifests. Raise ``YamlProblemError`` if the text is not YAML."""
    notices = Notices()
    jobs = []
    for manifest in _objects(read_documents(text)):
        try:
            jobs.append(_job(manifest, timezone, notices))
        except ValueError as error:
            notices.leave_out(manifest.line, str(error))
    return Conversion(tuple(jobs), notices.all())


def _objects(documents: Iterable[Document]) -> Iterator[Manifest]:
    """Yield the objects of all documents and of lists within them."""
    for document in documents:
        value = document.value
        items = value.get("items") if isinstance(value, dict) else None
        if isinstance(items, list) and str(value.get("kind", "")).endswith("List"):
            yield from (Manifest(document, f"items[{index}]", item) for index, item in enumerate(items))
        else:
            yield Manifest(document, "", value)


def _job(manifest: Manifest, timezone: str | None, notices: Notices) -> Job:
    """Return the schedule of a CronJob. Raise ``ValueError`` with the reason if it has none."""
    name = _name(manifest.value)
    spec = _object(manifest.value, "spec")
    template = _object(spec, "jobTemplate")
    job_spec = _object(template, "spec")
    pod = _object(_object(job_spec, "template"), "spec")
    image, command = _container(pod)
    timing, zone = _timing(spec, timezone)
    fields = {
        "description": " ".join(part for part in (image, command) if part),
        **_optional("labels", _labels(manifest.value["metadata"])),
        **timing.fields,
        **zone,
        "if_running": _if_running(spec),
        "misfire_grace_seconds": spec.get("startingDeadlineSeconds", HOWEVER_LATE_SECONDS),
        "max_retries": _max_retries(job_spec),
        "backoff_base_seconds": BACKOFF_BASE_SECONDS,
        **({"timeout_seconds": job_spec["activeDeadlineSeconds"]} if "activeDeadlineSeconds" in job_spec else {}),
        "trigger_payload": {"command": command, **_optional("image", image)},
        **_optional("paused", spec.get("suspend")),
    }
    _warn(manifest, spec, job_spec, pod, notices, has_timezone=bool(zone) or not timing.has_timezone)
    return Job(line=manifest.line, label=name, command=str(fields["description"]) or name, fields=fields)


def _name(value: Any) -> str:
    """Return the name of a CronJob with its namespace. Raise ``ValueError`` if the object is not a CronJob."""
    if not isinstance(value, dict):
        raise ValueError("this is not an object of Kubernetes.")  # noqa: TRY004 - about the input, not about code
    given = value.get("metadata")
    metadata = given if isinstance(given, dict) else {}
    name = metadata.get("name")
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind != "CronJob" or not str(version).startswith(API_GROUP):
        raise ValueError(f"{_text(kind) or 'an object'} {_text(name)!r} of {_text(version)!r} is not a CronJob.")
    if not name or not isinstance(name, str):
        raise ValueError("metadata.name is missing.")
    namespace = metadata.get("namespace")
    return f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name


def _labels(metadata: dict[str, Any]) -> dict[str, str]:
    """Return the labels of an object, or none if one of them is not a label of Kubernetes."""
    labels = metadata.get("labels")
    return labels if isinstance(labels, dict) and not field_errors(labels, Labels) else {}


def _text(value: Any) -> str:
    return value[:60] if isinstance(value, str) else ""


def _object(parent: dict[str, Any], field: str) -> dict[str, Any]:
    """Return an inner object without its empty fields, as templates leave them. Raise ``ValueError`` if it is none."""
    value = parent.get(field)
    if not isinstance(value, dict):
        raise ValueError(f"`{field}` is missing or not an object.")  # noqa: TRY004 - about the input, not about code
    return {name: inner for name, inner in value.items() if inner is not None}


def _timing(spec: dict[str, Any], timezone: str | None) -> tuple[Timing, dict[str, Any]]:
    schedule, zone = spec.get("schedule"), spec.get("timeZone")
    if not isinstance(schedule, str):
        raise ValueError("spec.schedule is missing or not text.")  # noqa: TRY004 - about the input, not about code
    prefixed = _ZONE.fullmatch(schedule.strip())
    if prefixed is not None:
        if zone is not None:
            raise ValueError("both spec.timeZone and a timezone in spec.schedule are given. Remove one.")
        zone, schedule = prefixed.groups()
    timing = read_timing(with_stepped_days(schedule.strip()))
    chosen = timezone if zone is None else canonical_zone(str(zone))
    return timing, {"timezone": chosen} if timing.has_timezone and chosen is not None else {}


def with_stepped_days(schedule: str) -> str:
    """Return an expression in which a step such as ``*/2`` restricts days, as it does in Kubernetes.

    There, days match if either field matches, unless one of them is a plain star. Here, as in cron, a field that begins
    with a star is never an alternative, so the star is replaced by the range that it stands for.
    """
    parts = schedule.split()
    if len(parts) != 5 or parts[2] in _STARS or parts[4] in _STARS:  # noqa: PLR2004 - the fields of cron
        return schedule
    for index, whole in ((2, "1-31/"), (4, "0-6/")):
        parts[index] = ",".join(_STEP.sub(whole, item) for item in parts[index].split(","))
    return " ".join(parts)


def _if_running(spec: dict[str, Any]) -> str:
    policy = spec.get("concurrencyPolicy", "Allow")
    if not isinstance(policy, str) or policy not in IF_RUNNING:
        raise ValueError(f"spec.concurrencyPolicy must be one of {', '.join(IF_RUNNING)}.")
    return IF_RUNNING[policy]


def _max_retries(job_spec: dict[str, Any]) -> Any:
    limit = job_spec.get("backoffLimit", BACKOFF_LIMIT)
    return min(limit, DEFAULT_CAPS.max_retries) if isinstance(limit, int) else limit


def _optional(field: str, value: Any) -> dict[str, Any]:
    return {field: value} if value else {}


def _container(pod: dict[str, Any]) -> tuple[str, str]:
    """Return the image and the command line of the first container."""
    containers = pod.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else {}
    if not isinstance(first, dict):
        return "", ""
    words = [word for field in ("command", "args") for word in _list(first.get(field))]
    return str(first.get("image") or ""), shlex.join(map(str, words))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _warn(
    manifest: Manifest,
    spec: dict[str, Any],
    job_spec: dict[str, Any],
    pod: dict[str, Any],
    notices: Notices,
    *,
    has_timezone: bool,
) -> None:
    """Add a notice for everything that the schedule does not say as the CronJob does."""
    job_path, pod_path = "spec.jobTemplate.spec", "spec.jobTemplate.spec.template.spec"
    if not has_timezone:
        notices.warn(manifest.line_of("spec.schedule"), NO_TIMEZONE)
    if "startingDeadlineSeconds" not in spec:
        notices.warn(manifest.line_of("spec"), NO_DEADLINE)
    if "activeDeadlineSeconds" not in job_spec:
        notices.warn(manifest.line_of(job_path), NO_TIMEOUT)
    limit = job_spec.get("backoffLimit")
    if isinstance(limit, int) and limit > DEFAULT_CAPS.max_retries:
        text = f"backoffLimit is larger than what max_retries may be: {DEFAULT_CAPS.max_retries} is written."
        notices.warn(manifest.line_of(f"{job_path}.backoffLimit"), text)
    for path, fields, known in (("spec", spec, _KNOWN_SPEC), (job_path, job_spec, _KNOWN_JOB)):
        for field in fields:
            if field not in known:
                notices.warn(manifest.line_of(f"{path}.{field}"), NO_COUNTERPART.format(field=field[:60]))
    _warn_about_metadata(manifest, notices)
    image, _ = _container(pod)
    notices.warn(manifest.line_of(pod_path), POD.format(image=f"the image '{image[:100]}'" if image else "its image"))
    others = [*_list(pod.get("containers"))[1:], *_list(pod.get("initContainers"))]
    if others:
        names = ", ".join(_text(other.get("name")) if isinstance(other, dict) else "?" for other in others)
        notices.warn(manifest.line_of(f"{pod_path}.containers"), MORE_CONTAINERS.format(names=names))


def _warn_about_metadata(manifest: Manifest, notices: Notices) -> None:
    metadata = manifest.value["metadata"]
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    if labels and labels != _labels(metadata):
        notices.warn(manifest.line_of("metadata.labels"), NOT_LABELS)
    if isinstance(annotations, dict) and annotations.keys() - {_LAST_APPLIED}:
        notices.warn(manifest.line_of("metadata.annotations"), NO_COUNTERPART.format(field="annotations"))
