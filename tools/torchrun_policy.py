"""Builds the admission policy that refuses options of torchrun which the agent sets.

It does in CEL what `launchers.fixed_options` does in the operator, with the same patterns. What the
API server cannot evaluate, such as a very long command, the operator still refuses. A rule of the
CRD could not look for variables in the words of a command: the API server bounds the cost of such a
rule by the longest possible command.
"""

from __future__ import annotations

from elasticjob_api.frameworks import torchrun
from elasticjob_api.frameworks.pytorch import PYTORCH
from elasticjob_api.meta import Json

(_ROLE,) = PYTORCH.roles
_SPEC = f"object.spec.replicaSpecs['{_ROLE}']"
_CONTAINER = f"{_SPEC}.template.spec.containers[0]"
_CALL = torchrun.BEFORE_CALL + torchrun.PROGRAM
_SHELLS = "|".join(torchrun.SHELLS)
_END = torchrun.END_OF_CALL
_SCRIPT = " (?:" + torchrun.SCRIPT.replace(".*", "[^ ]*").replace("--no-", "--no[-_]") + ") "
_WITH_VALUE = "|".join(torchrun.WITH_VALUE).replace("-", "[-_]")
_OPTION = (
    rf" --(?:{torchrun.STANDALONE}(?:=[^ $]*)? "
    rf"|(?:{_WITH_VALUE})(?:=[^ $]* | (?: [^ $]* |$)))"
)
"""An option without a variable in its value, among words that each stand between two blanks."""

_IS_OF_PYTORCH = (
    f"object.spec.framework == 'pytorch' && '{_ROLE}' in object.spec.replicaSpecs && "
    f"{_SPEC}.agent == 'Managed'"
)
_VARIABLES = {
    "command": f"{_CONTAINER}.?command.orValue([]) + {_CONTAINER}.?args.orValue([])",
    "shellText": r"variables.command.map(w, '\u001e' + w + '\u001e').join('')"
    rf".find(r'\x1e{torchrun.SHELL_OPTION}\x1e\x1e[^\x1e]*').find(r'[^\x1e]*$')",
    "text": rf"variables.command[0].matches(r'^(?:.*/)?(?:{_SHELLS})$')"
    r" ? variables.shellText.replace('\\\n', ' ')"
    rf" : variables.command.join(' ').find(r'(?s)^(?:\S*/)?{torchrun.PROGRAM}(?:\s.*)?$')",
    "call": rf"variables.text.findAll(r'{_CALL}(?:[\s{_END}]|$)').size() == 1"
    rf" ? variables.text.find(r'{_CALL}[ \t][^{_END}]*') : ''",
    "words": r"variables.call.find(r'(?:torchrun|torch\.distributed\.(?:run|launch))[ \t].*$')"
    r""".replace('\t', ' ').replace('"', '').replace("'", '').split(' ')"""
    ".filter(w, w != '').map(w, ' ' + w + ' ').join('')",
    "ofTorchrun": f"variables.words.matches(r'{_SCRIPT}') ? "
    f"variables.words.find(r'^.*?{_SCRIPT}') : variables.words",
    "refused": f"variables.ofTorchrun.findAll(r'{_OPTION}')"
    """.map(o, "'" + o.trim().split(' ')[0] + "'")""",
}


def spec() -> Json:
    """Return the spec of the policy, without the objects that it matches."""
    replaced = ", ".join(
        f"{field} replaces --{option}" for option, field in torchrun.FIELDS.items()
    )
    refusal = (
        f"spec.replicaSpecs.{_ROLE}.template.spec.containers[0].command: the agent sets %s for "
        f"torchrun in each world; remove %s; {replaced}"
    )
    values = "variables.refused.join(', '), variables.refused.size() == 1 ? 'it' : 'them'"
    return {
        "failurePolicy": "Ignore",
        "matchConditions": [{"name": "of-pytorch", "expression": _IS_OF_PYTORCH}],
        "variables": [
            {"name": name, "expression": expression} for name, expression in _VARIABLES.items()
        ],
        "validations": [
            {
                "expression": "variables.refused.size() == 0",
                "message": refusal % ("an option", "it"),
                "messageExpression": f"'{refusal}'.format([{values}])",
            }
        ],
    }
