"""Every public call with every kind of argument that is of a wrong type: it is refused, the sentence names the argument
and no word of the inside, and nothing has changed.
"""

from __future__ import annotations

from survey import calls
from survey.attempts import complaint
from survey.calls import WRONG_TYPES
from survey.scene import Scene


def test_wrong_types(one_of_everything: Scene) -> None:
    complaints = []
    for call in calls.calls(one_of_everything):
        before = one_of_everything.state()
        for name, (_, kind) in call.arguments.items():
            complaints += [complaint(call, {name: value}, name, expected=TypeError) for value in WRONG_TYPES[kind]]
        if one_of_everything.state() != before:
            complaints.append(f"{call.name} has changed something: {before}, now {one_of_everything.state()}")
    assert not any(complaints), "\n" + "\n".join(filter(None, complaints))


def test_nothing_public_is_left_out(one_of_everything: Scene) -> None:
    """Whoever adds a call adds it here."""
    surveyed = {call.name for call in calls.calls(one_of_everything)}
    for prefix, subject in calls.subjects(one_of_everything).items():
        public = [name for name in dir(subject) if not name.startswith("_") and callable(getattr(subject, name, None))]
        calls_of = {f"{prefix}{name}" for name in public if not isinstance(getattr(subject, name), type)}
        assert calls_of <= surveyed | calls.WITHOUT_ARGUMENTS
