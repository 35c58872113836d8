"""Generates a static ELF executable of a few hundred bytes that executes a fixed command.

The agent's interpreter must be started by its own dynamic loader, with arguments, in images that
may have no shell, no loader, or another C library. The kernel starts only a static executable
without help. The image that the agent is installed from has no compiler, so this module writes the
machine code.

The executable also hides variables such as the image's LD_PRELOAD from the agent's loader, which
has another C library: it renames LD_X to !D_X. exec_child.py restores the names before it executes
the user's command. A pod's command cannot name the loader instead: it could not rename variables,
and `discover_hosts` and `sys.executable` must be single files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_BASE = 0x400000
_HEADERS = 64 + 2 * 56
_X86_64 = bytes.fromhex(
    "488b0424"  # mov  rax, [rsp]           argc
    "488d54c410"  # lea  rdx, [rsp+rax*8+16]  the environment, also the third argument of execve
    "4889d7"  # mov  rdi, rdx
    "488b37"  # variable: mov rsi, [rdi]
    "4883c708"  # add  rdi, 8
    "4885f6"  # test rsi, rsi
    "7413"  # jz   arguments
    "8b06"  # mov  eax, [rsi]
    "25ffffff00"  # and  eax, 0xffffff
    "3d4c445f00"  # cmp  eax, 'LD_'
    "75e6"  # jne  variable
    "c60621"  # mov  byte [rsi], '!'
    "ebe1"  # jmp  variable
    "4883c410"  # arguments: add rsp, 16      argv[1] and all after it stay where they are
    "488d352a000000"  # lea  rsi, [rip+words]
    "48ad"  # word: lodsq
    "4885c0"  # test rax, rax
    "7403"  # jz   become
    "50"  # push rax                  in front of them
    "ebf6"  # jmp  word
    "488b3c24"  # become: mov rdi, [rsp]
    "4889e6"  # mov  rsi, rsp
    "b83b000000"  # mov  eax, 59              execve
    "0f05"  # syscall
    "bf7f000000"  # mov  edi, 127             only if it has failed
    "b83c000000"  # mov  eax, 60              exit
    "0f05"  # syscall
    "660f1f440000"  # to a multiple of 8; words:
)
_AARCH64 = struct.pack(
    "<30I",
    0x910003E9,  # mov  x9, sp
    0xF841052A,  # ldr  x10, [x9], #16       argc; x9: argv[1]
    0x8B0A0D22,  # add  x2, x9, x10, lsl #3  the environment, also the third argument of execve
    0xAA0203EB,  # mov  x11, x2
    0xF840856C,  # variable: ldr x12, [x11], #8
    0xB40001AC,  # cbz  x12, arguments
    0x3940018D,  # ldrb w13, [x12]
    0x710131BF,  # cmp  w13, #'L'
    0x54FFFF81,  # b.ne variable
    0x3940058D,  # ldrb w13, [x12, #1]
    0x710111BF,  # cmp  w13, #'D'
    0x54FFFF21,  # b.ne variable
    0x3940098D,  # ldrb w13, [x12, #2]
    0x71017DBF,  # cmp  w13, #'_'
    0x54FFFEC1,  # b.ne variable
    0x5280042D,  # mov  w13, #'!'
    0x3900018D,  # strb w13, [x12]
    0x17FFFFF3,  # b    variable
    0x1000018B,  # arguments: adr x11, words
    0xF840856C,  # word: ldr x12, [x11], #8
    0xB400006C,  # cbz  x12, become
    0xF81F8D2C,  # str  x12, [x9, #-8]!      in front of argv[1] and all after it
    0x17FFFFFD,  # b    word
    0xF9400120,  # become: ldr x0, [x9]
    0xAA0903E1,  # mov  x1, x9
    0xD2801BA8,  # mov  x8, #221             execve
    0xD4000001,  # svc  #0
    0xD2800FE0,  # mov  x0, #127             only if it has failed
    0xD2800BA8,  # mov  x8, #93              exit
    0xD4000001,  # svc  #0; words:
)
_MACHINES = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}
"""By the output of `uname -m`: the machine's number in an ELF file, and the code, which ends where
the words begin.
"""
MACHINES = tuple(_MACHINES)


def launcher(machine: str, command: Sequence[str]) -> bytes:
    """Return an executable that executes `command` followed by its own arguments."""
    number, code = _MACHINES[machine]
    texts = [argument.encode() + b"\0" for argument in command]
    begin = _BASE + _HEADERS + len(code) + 8 * (len(texts) + 1)
    addresses = [begin + sum(map(len, texts[:position])) for position in range(len(texts))]
    words = struct.pack(
        f"<{len(texts) + 1}Q", *reversed(addresses), 0
    )  # pushed one by one, so the last comes first
    body = code + words + b"".join(texts)
    size = _HEADERS + len(body)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    segment = struct.pack(
        "<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000
    )  # read and execute
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # read and write
    return header + segment + stack + body
