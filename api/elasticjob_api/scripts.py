"""Scripts of requests.

A shell script that the job's launcher runs before members leave, or when new ones are ready.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from elasticjob_api.meta import Object, ObjectName, Rule, Time

MAX_SCRIPT_CHARACTERS = 16_384
MAX_SCRIPT_VARIABLES = 32
MAX_LAST_WORDS = 2048
Script = Annotated[
    str,
    Meta(
        description="A shell script that the job's launcher runs, with the changed pods (pod:slots,…) as $1: before "
        "members leave, or when the new ones are ready. The job must allow it, by runPolicy.allowScripts.",
        max_length=MAX_SCRIPT_CHARACTERS,
    ),
]
ExitCode = Annotated[int, Meta(ge=0, le=255)]
LastWords = Annotated[
    str,
    Meta(description="The last it has printed, or why it has no end.", max_length=MAX_LAST_WORDS),
]


class ScriptVariable(Object, frozen=True):
    """An environment variable of a script."""

    name: Annotated[
        str, Meta(description="Its name.", pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)
    ]
    value: Annotated[str, Meta(description="Its value, as it is.", max_length=4096)] = ""


Variables = Annotated[
    list[ScriptVariable],
    Meta(
        description="Variables of the script, beside those of the launcher.",
        max_length=MAX_SCRIPT_VARIABLES,
    ),
]
NEEDS_SCRIPT = Rule(
    "!has(self.env) || size(self.env) == 0 || (has(self.script) && size(self.script) > 0)",
    "env is of the script; give script, or remove env",
    field=".env",
)


class ScriptRun(Object, frozen=True):
    """The one run of a request's script."""

    start_time: Annotated[
        Time, Meta(description="When it was ordered; it has timeoutSeconds from here.")
    ]
    pod: Annotated[
        ObjectName | None,
        Meta(
            description="The launcher's pod that runs it; no other one does. Unset: it was not run."
        ),
    ] = None
    exit_code: Annotated[
        ExitCode | None,
        Meta(description="Its exit code as a shell's; unset: none is known, see completionTime."),
    ] = None
    message: LastWords = ""
    completion_time: Annotated[Time | None, Meta(description="When its end was known.")] = None


class ScriptEnd(Object, frozen=True):
    """How the script of a ScalePlan has ended, as its launcher's agent has told the master."""

    plan: Annotated[str, Meta(description="The UID of the plan.", max_length=64)]
    exit_code: Annotated[ExitCode, Meta(description="Its exit code as a shell's.")]
    message: LastWords = ""
