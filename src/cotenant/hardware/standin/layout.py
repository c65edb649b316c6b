"""Declares the layout of the stand-in's shared file, the same as in csrc/standin/state.h (a test
compares).
"""

from __future__ import annotations

import ctypes

MAGIC = b"COTSTAND"
ABI = 3
CARDS = 64
PROCESSES = 1024
XIDS = 16
SHARED = 256
GROUPS = 512
NO_LIMIT = 2**64 - 1
LOCK_CONTROL = (1 << 40) + 1
LOCK_PROCESS = 1 << 41

_u64 = ctypes.c_uint64


class Sample(ctypes.Structure):
    _fields_ = [("time", _u64), ("busy", _u64)]


class Xid(ctypes.Structure):
    _fields_ = [("code", _u64), ("time", _u64)]


class Card(ctypes.Structure):
    _fields_ = [
        ("uuid", ctypes.c_char * 80),
        ("name", ctypes.c_char * 96),
        ("total", _u64),
        ("reserved", _u64),
        ("context_bytes", _u64),
        ("launch_ns", _u64),
        ("major", _u64),
        ("minor", _u64),
        ("multiprocessors", _u64),
        ("parent", _u64),
        ("slices", _u64),
        ("instance", _u64),
        ("mig_capable", _u64),
        ("lost", _u64),
        ("ecc_corrected", _u64),
        ("ecc_uncorrected", _u64),
        ("power_limit", _u64),
        ("ordinal", _u64),
        ("xid_count", _u64),
        ("xid", Xid * XIDS),
        ("lock", ctypes.c_ubyte * 64),
        ("version", _u64),
        ("used", _u64),
        ("peak", _u64),
        ("busy", _u64),
        ("busy_until", _u64),
        ("samples", _u64),
        ("sample", Sample * 64),
        ("unified", _u64),
        ("pad", ctypes.c_ubyte * 336),
    ]


class Use(ctypes.Structure):
    _fields_ = [
        ("used", _u64),
        ("context", _u64),
        ("launches", _u64),
        ("busy", _u64),
        ("busy_until", _u64),
        ("samples", _u64),
        ("spare", _u64 * 2),
        ("sample", Sample * 16),
    ]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", _u64),
        ("namespace", _u64),
        ("started", _u64),
        ("generation", _u64),
        ("name", ctypes.c_char * 32),
        ("groups", _u64 * (GROUPS // 64)),
        ("use", Use * CARDS),
    ]


class Shared(ctypes.Structure):
    _fields_ = [
        ("id", _u64),
        ("card", _u64),
        ("bytes", _u64),
        ("owner", _u64),
        ("holders", _u64 * (PROCESSES // 64)),
        ("spare", _u64 * 4),
    ]


class Limit(ctypes.Structure):
    _fields_ = [("soft", _u64), ("hard", _u64)]


class Group(ctypes.Structure):
    _fields_ = [
        ("inode", _u64),
        ("device", _u64),
        ("spare", _u64 * 6),
        ("path", ctypes.c_char * 960),
        ("limit", Limit * CARDS),
    ]


class State(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("abi", ctypes.c_uint32),
        ("cards", ctypes.c_uint32),
        ("size", _u64),
        ("cuda_version", _u64),
        ("driver_version", ctypes.c_char * 32),
        ("mutexes", _u64),
        ("high", _u64),
        ("lock", ctypes.c_ubyte * 64),
        ("limited", _u64),
        ("pad", ctypes.c_ubyte * 3944),
        ("card", Card * CARDS),
        ("process", Process * PROCESSES),
        ("shared", Shared * SHARED),
        ("group", Group * GROUPS),
    ]
