"""Scripts of requests, which the launcher runs before members leave or when new ones are ready."""

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
        description="A shell script that the job's launcher runs before members leave, or when "
        "new ones are ready. $1 contains the changed pods (pod:slots,…). The job must allow "
        "scripts by runPolicy.allowScripts.",
        max_length=MAX_SCRIPT_CHARACTERS,
    ),
]
ExitCode = Annotated[int, Meta(ge=0, le=255)]
LastWords = Annotated[
    str,
    Meta(
        description="The end of its output, or why its result is not known.",
        max_length=MAX_LAST_WORDS,
    ),
]


class ScriptVariable(Object, frozen=True):
    """An environment variable of a script."""

    name: Annotated[
        str,
        Meta(
            description="Name of the variable.", pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=128
        ),
    ]
    value: Annotated[
        str, Meta(description="Value of the variable, used as written.", max_length=4096)
    ] = ""


Variables = Annotated[
    list[ScriptVariable],
    Meta(
        description="Environment variables of the script, in addition to those of the launcher.",
        max_length=MAX_SCRIPT_VARIABLES,
    ),
]
NEEDS_SCRIPT = Rule(
    "!has(self.env) || size(self.env) == 0 || (has(self.script) && size(self.script) > 0)",
    "env needs a script; set script, or remove env",
    field=".env",
)


class ScriptRun(Object, frozen=True):
    """The only run of a request's script."""

    start_time: Annotated[
        Time, Meta(description="When the script was requested. timeoutSeconds starts here.")
    ]
    pod: Annotated[
        ObjectName | None,
        Meta(
            description="The launcher's pod that runs the script; no other pod does. Unset: it "
            "did not run."
        ),
    ] = None
    exit_code: Annotated[
        ExitCode | None,
        Meta(description="Exit code as in a shell; unset: not known, see completionTime."),
    ] = None
    message: LastWords = ""
    completion_time: Annotated[Time | None, Meta(description="When the result was known.")] = None


class ScriptEnd(Object, frozen=True):
    """The result of a ScalePlan's script, as the launcher's agent has reported it."""

    plan: Annotated[str, Meta(description="UID of the plan.", max_length=64)]
    exit_code: Annotated[ExitCode, Meta(description="Exit code as in a shell.")]
    message: LastWords = ""
