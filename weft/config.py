"""Options: what they are called, what they accept, and which value holds on the current thread.

An option has a process-wide value (``weft.config.update``, an environment variable ``WEFT_<NAME>``) and may be
overlaid by a context manager (``with weft.enable_x64(True)``), which only its own thread sees. Names are accepted
with or without JAX's ``jax_`` prefix. The values of all options that affect tracing or code are interned as one
tuple whose id, the token, is part of every cache key; leaving a context restores the token.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from weft import runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple, Record

_DOT_PRECISIONS = (
    None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64",
)  # fmt: skip


WARN_SECONDS = 10.0  # after which a wait for other processes says whom it waits for
_GUARDS = (None, "allow", "log", "disallow", "log_explicit", "disallow_explicit")
CHECKS = ("index", "nan", "overflow")
_SEQUENCES = (tuple, list, set, frozenset)
_GENERATORS = ("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg", "philox2x32", "philox4x32")


class Option(Record):
    """One option: ``kind`` bool, int, str or object; ``choices`` when only some values are legal."""

    name: str
    default: Any
    kind: type
    meaning: str
    choices: tuple[Any, ...] | None = None
    in_key: bool = False  # affects tracing or code, hence part of the token


def _option(*args: Any, **kwargs: Any) -> tuple[str, Option]:
    option = Option(*args, **kwargs)
    return option.name, option


# Options shared with JAX, then weft's own (at most 16).
OPTIONS: dict[str, Option] = dict((
    _option("enable_x64", False, bool, "64-bit types are available", in_key=True),
    _option("numpy_dtype_promotion", "standard", str, "implicit dtype promotion", ("standard", "strict"), True),
    _option("numpy_rank_promotion", "allow", str, "implicit rank promotion", ("allow", "warn", "raise"), True),
    _option("default_device", None, object, "device of uncommitted computations", in_key=True),
    _option("platforms", None, object, "platforms to use, the default first, by commas: 'cuda,cpu'", in_key=True),
    _option("default_matmul_precision", None, object, "precision of contractions", _DOT_PRECISIONS, True),
    _option("disable_jit", False, bool, "run jitted functions operation by operation", in_key=True),
    _option("debug_nans", False, bool, "raise when a result holds a NaN", in_key=True),
    _option("debug_infs", False, bool, "raise when a result holds an infinity", in_key=True),
    _option("log_compiles", False, bool, "log a line for each trace and compilation"),
    _option("explain_cache_misses", False, bool, "say why a jitted call missed the cache"),
    _option("check_tracer_leaks", False, bool, "raise when a traced function leaks a traced value", in_key=True),
    _option("traceback_filtering", "auto", str, "how weft's own frames are hidden from tracebacks",
            ("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto")),
    _option("default_prng_impl", "threefry2x32", str, "generator behind random.key", _GENERATORS, True),
    _option("threefry_partitionable", True, bool, "random bits by position rather than by halves", in_key=True),
    _option("random_seed_offset", 0, int, "added to every integer seed", in_key=True),
    _option("enable_custom_prng", False, bool, "PRNGKey gives typed keys", in_key=True),
    _option("high_dynamic_range_gumbel", False, bool, "gumbel draws twice the bits by default", in_key=True),
    _option("debug_key_reuse", False, bool, "raise where a random key is used twice", in_key=True),
    _option("pallas_enable_debug_checks", False, bool, "debug_check of kernels checks", in_key=True),
    _option("pallas_tpu_interpret_mode", None, object, "InterpretParams that kernels are run with", in_key=True),
    _option("enable_checks", False, bool, "type-check jaxprs wherever they are made"),
    _option("no_execution", False, bool, "raise where a program would be run", in_key=True),
    _option("allow_f16_reductions", True, bool, "sums of half precisions are accepted", in_key=True),
    *[
        _option(f"transfer_guard{direction}", None, object, "whether host values become arrays", _GUARDS, True)
        for direction in ("", "_host_to_device", "_device_to_host", "_device_to_device")
    ],
    _option("num_cpu_devices", -1, int, "virtual devices of the CPU, -1 for as many as XLA_FLAGS says, otherwise one"),
    _option("no_tracing", False, bool, "raise where a function would be traced"),
    _option("explicit_x64_dtypes", "warn", str, "64-bit dtypes asked for by name without enable_x64: narrowed with a "
            "warning, an error, or given", ("warn", "error", "allow"), True),
    _option("enable_compilation_cache", True, bool, "the cache on disk is used, as with the option cache"),
    _option("compilation_cache_dir", None, object, "folder of the cache on disk where cache_dir names none"),
    _option("compilation_cache_max_size", -1, int, "bytes kept on disk, 0 for no cache; -1 for cache_disk_bytes"),
    # weft's own
    _option("checks", "", str, "guards in compiled programs: index, nan, overflow by commas, or all", in_key=True),
    _option("fast", False, bool, "allow what changes the last bits: updates of floats in any order", in_key=True),
    _option("show", "", str, "stages to print, a comma-separated list of words"),
    _option("dump", "", str, "folder into which every form of every program is written"),
    _option("skip", "", str, "stages to leave out, a comma-separated list of words", in_key=True),
    _option("check", False, bool, "verify the program after every stage"),
    _option("compile", "inline", str, "where LLVM runs", ("inline", "isolated")),
    _option("progress", "auto", str, "show long compilations (auto: on a terminal)", ("auto", "on", "off")),
    _option("num_threads", 0, int, "size of the thread pool, 1 to 256; 0 for the size at start"),
    _option("cache_bytes", 256 << 20, int, "bytes of traces, programs and machine code kept in the process"),
    _option("cache", True, bool, "machine code and programs are kept on disk for later processes"),
    _option("cache_programs", True, bool, "whole programs are kept on disk too, and need no compilation"),
    _option("cache_dir", "", str, "folder of the cache on disk, empty for the platform's cache folder"),
    _option("cache_disk_bytes", 256 << 20, int, "bytes kept on disk"),
    _option("product_library", "auto", str, "products on GPUs by their maker's library", ("auto", "on", "off"), True),
    _option("collective_timeout", 600, int, "seconds after which a wait for other processes raises, 0 for never"),
))  # fmt: skip

# JAX's options without a meaning here: accepted, remembered and given back, so that programs which set them run.
INERT: dict[str, Any] = {
    "array_garbage_collection_guard": None, "auto_pcast": False, "captured_constants_report_frames": 0,
    "captured_constants_warn_bytes": 2_000_000_000, "check_static_indices": False, "check_vma": True,
    "compilation_cache_check_contents": False, "compilation_cache_expect_pgle": False,
    "compilation_cache_include_metadata_in_key": False, "compiler_detailed_logging_min_ops": 10,
    "compiler_enable_remat_pass": True, "cpu_collectives_implementation": "gloo", "cpu_enable_async_dispatch": True,
    "custom_vjp3": False, "distributed_debug": False, "debug_log_modules": "", "disable_bwd_checks": False,
    "disable_most_optimizations": False, "disable_vmap_shmap_error": False, "dump_ir_modes": "", "dump_ir_to": "",
    "eager_constant_folding": False, "embedded_constants_max_bytes": -1, "enable_pgle": False,
    "enable_preemption_service": True, "exec_time_optimization_effort": 0.0,
    "hlo_source_file_canonicalization_regex": None, "include_debug_info_in_dumps": True,
    "include_full_tracebacks_in_locations": True, "tracer_error_num_traceback_frames": 5, "legacy_prng_key": "allow",
    "log_checkpoint_residuals": False, "logging_level": "", "memory_fitting_effort": 0.0, "memory_fitting_level": "O2",
    "mutable_array_checks": True, "optimization_level": "O1", "persistent_cache_enable_xla_caches": "",
    "persistent_cache_min_compile_time_secs": 1.0, "persistent_cache_min_entry_size_bytes": 0, "platform_name": "",
    "raise_persistent_cache_errors": False, "remat3": False, "scan3": False, "send_traceback_to_runtime": False,
    "softmax_custom_jvp": False, "source_url_schema": None, "pprint_use_color": True, "thread_guard": False,
    "traceback_in_locations_limit": 10, "use_direct_linearize": True, "use_magma": None, "use_shardy_partitioner": True,
    "use_simplified_jaxpr_constants": False,
}  # fmt: skip

# JAX's options for what weft does not have (Mosaic, XLA's own in devices, processes and files): setting one raises.
_ABSENT_NAMES = """
    backend_target bcoo_cusparse_lowering check_proxy_envs cpu_get_global_topology_timeout_minutes
    cpu_get_local_topology_timeout_minutes cross_host_transfer_socket_address cross_host_transfer_timeout_seconds
    cross_host_transfer_transfer_size cross_host_transport_addresses cuda_visible_devices
    debug_leaked_clients_on_clear_backends disallow_mesh_context_manager enable_recoverability
    error_checking_behavior_divide error_checking_behavior_nan error_checking_behavior_oob
    experimental_unsafe_xla_runtime_errors export_calling_convention_version export_ignore_forward_compatibility
    force_dcn_cross_host_transfers jax2tf_associative_scan_reductions jax2tf_default_native_serialization
    mock_gpu_topology mock_num_gpu_processes mosaic_allow_hlo oneapi_visible_devices
    pallas_poison_buffers pallas_use_mosaic_gpu pallas_verbose_errors pgle_aggregation_percentile pgle_profiling_runs
    pjrt_client_create_options ragged_dot_use_gpu_pallas_triton_lowering ragged_dot_use_ragged_dot_instruction
    refs_to_pins remove_custom_partitioning_ptr_from_cache_key remove_size_one_mesh_axis_from_type
    rocm_visible_devices serialization_version share_binary_between_hosts share_binary_between_hosts_timeout_ms
    sort_devices_by_process_index threefry_gpu_kernel_lowering use_emit_pipeline_primitive xla_backend
    xla_profile_version
"""
ABSENT = frozenset(_ABSENT_NAMES.split())

# Options with values that are not built: those that are, and the reason. Any other value raises.
_ONE_DTYPE = "contractions are computed in the precision of their operands, half precisions in float32"
_PARTLY_BUILT: dict[str, tuple[tuple[Any, ...], str]] = {
    "default_prng_impl": (("threefry2x32", "rbg", "unsafe_rbg"), "the other generators"),
    "threefry_partitionable": ((True,), "random bits by halves"),
    "default_matmul_precision": ((*_DOT_PRECISIONS[:7], "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
                                  "BF16_BF16_F32_X9", "TF32_TF32_F32", "F32_F32_F32"), _ONE_DTYPE),
    "legacy_prng_key": (("allow",), "raw keys are always accepted"),
    "check_static_indices": ((False,), "static indices are not checked"),
    "thread_guard": ((False,), "threads are not checked"),
    "array_garbage_collection_guard": ((None, "allow"), "garbage collection of arrays is not watched"),
}  # fmt: skip

_KEY_NAMES = tuple(name for name, option in OPTIONS.items() if option.in_key)
_TRUE, _FALSE = ("1", "true", "yes", "on", "y", "t"), ("0", "false", "no", "off", "n", "f", "")


class MeshState(Record):
    """The meshes of a thread (``core.sharding.meshes``): None where there is none; ``entered`` by ``with mesh``."""

    abstract: Any = None
    concrete: Any = None
    entered: tuple[Any, ...] = ()
    relaxed: bool = False  # results have no shardings in their types: ``core.sharding.explicit.relaxed``


NO_MESH = MeshState()


class Values(NamedTuple):
    """What a token stands for: the values of ``_KEY_NAMES``, of ``_user_names``, and what ``_Thread`` has."""

    options: tuple[Any, ...]
    users: tuple[Any, ...]
    axes: tuple[tuple[Any, int], ...]
    sizes: int
    mesh: MeshState


class _Thread(threading.local):
    """The overlay of the current thread (option name -> value), and its token with the version it was made at."""

    def __init__(self) -> None:
        self.overlay: dict[str, Any] = {}
        self.token: tuple[int, int] = (-1, 0)
        self.axes: tuple[tuple[Any, int], ...] = ()  # (name, extent) of what vmap maps over, the innermost last
        self.sizes = 0  # the trace for unknown sizes that this thread is in (``core.symbolic.open_sizes``); 0: none
        self.mesh = NO_MESH


_thread = _Thread()
_values: dict[str, Any] = {}
_user_names: list[str] = []  # of what make_user_context made
_tokens: dict[Values, int] = {}
_interned: list[Values] = []  # the values of each token
execution_watched = False  # whether no_execution was ever set
keys_watched = False  # whether debug_key_reuse was ever set
checks_watched = False  # whether checks was ever set, also for one function
_WATCHED = {"no_execution": "execution_watched", "checks": "checks_watched", "debug_key_reuse": "keys_watched"}
_version = 0  # grows with every process-wide change, so that threads make their tokens anew
_lock = forks.held("configuration")


# A thread whose token is this follows the process-wide one.
_FOLLOW = 2**64 - 1
_STARTING_THREADS: int = runtime.Pool.get_threads()
_HAS_DEFAULT = hasattr(runtime, "set_default_config_token")


def _canonical(name: str) -> str:
    """The table's name for ``name``; an unknown one raises AttributeError with close matches."""
    short = name[4:] if name.startswith("jax_") else name[5:] if name.startswith("weft_") else name
    if short in OPTIONS or short in INERT:
        return short
    if short in ABSENT:
        raise NotImplementedError(f"[config] {name} configures a part of JAX that weft does not have")
    close = lazy.difflib.get_close_matches(short, [*OPTIONS, *INERT], n=3)
    hint = f". Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise AttributeError(f"Unrecognized config option: {name}{hint}")


def _checked(name: str, value: Any) -> Any:
    """``value`` as option ``name`` stores it; ValueError or TypeError when it is not legal."""
    option = OPTIONS.get(name)
    value = value if option is None else _of_kind(option, value)
    built, reason = _PARTLY_BUILT.get(name, (None, ""))
    if built is not None and value not in built:
        raise NotImplementedError(f"[config] {name}={value!r} is not implemented ({reason}); use one of {list(built)}")
    if name == "num_cpu_devices":
        lazy.submodule("weft.dispatch.devices").check_count(value)
    if value and name in _WATCHED:
        globals()[_WATCHED[name]] = True
    if option is None:
        if name == "platform_name" and value not in (None, "", "cpu"):
            raise NotImplementedError(f"[config] {name}={value!r}: set platforms={value!r} instead")
    elif name == "compilation_cache_dir" and not isinstance(value, str | os.PathLike | None):
        raise TypeError(f"[config] compilation_cache_dir is None or a path, got {value!r}")
    elif name == "platforms":
        _check_platforms(value)
    elif name == "default_device":
        _check_device(value)
    return value


def _check_device(value: Any) -> None:
    """None, a device or the name of its platform."""
    platform = value if isinstance(value, str) else getattr(value, "platform", None)
    if value is not None and not isinstance(platform, str):
        raise ValueError(f"[config] default_device is a device such as weft.devices()[0] or 'cpu', got {value!r}")
    if isinstance(value, str):
        lazy.submodule("weft.dispatch.devices").check_backend(value)


def _check_platforms(value: Any) -> None:
    """None, or names of platforms that are there, separated by commas."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"[config] platforms is None or names separated by commas, got {value!r}")
    for platform in (value or "").split(","):
        if platform.strip():
            lazy.submodule("weft.dispatch.devices").check_backend(platform.strip())


def check_words(value: Any) -> str:
    """The words of the option ``checks`` in one order, by commas; from text, a bool or a sequence of words."""
    if value is None or isinstance(value, bool):
        return ",".join(CHECKS) if value else ""
    words = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, _SEQUENCES) else None
    if words is None:
        raise TypeError(f"[config] checks takes words of {list(CHECKS)}, got {value!r}")
    asked = {word.strip() if isinstance(word, str) else word for word in words} - {"", "off"}
    if "all" in asked:
        asked = asked - {"all"} | set(CHECKS)
    unknown = [word for word in asked if word not in CHECKS]
    if unknown:
        raise ValueError(f"[config] checks: {unknown[0]!r} is not one of {[*CHECKS, 'all']}")
    return ",".join([word for word in CHECKS if word in asked])


def _of_kind(option: Option, value: Any) -> Any:
    """``value`` in the type of ``option``, if it is one of its choices."""
    name = option.name
    if name == "checks":
        return check_words(value)
    if option.choices is not None and value not in option.choices:
        legal = [choice for choice in option.choices if choice is not None]
        none_or = "None or " if None in option.choices else ""
        raise ValueError(f"[config] {name}: new enum value must be {none_or}in {legal}, got {value!r}")
    if option.kind is bool:
        return _as_bool(name, value)
    if option.kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"[config] {name} takes an int, got {value!r}")
    if name == "num_threads" and not 0 <= value <= 256:
        raise ValueError(f"[config] num_threads is between 0 and 256, got {value}")
    if name == "collective_timeout" and value < 0:
        raise ValueError(f"[config] collective_timeout is 0 or a number of seconds, got {value}")
    if option.kind is str and not isinstance(value, str):
        raise TypeError(f"[config] {name} takes a str, got {value!r}")
    return value


def _as_bool(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in _TRUE:
        return True
    if isinstance(value, str) and value.lower() in _FALSE:
        return False
    raise ValueError(f"[config] {name} takes True or False, got {value!r}")


# The devices that these name are looked for at first use: that may load a plugin, and needs rooms above this one.
_OF_DEVICES = ("platforms", "default_device")


def _from_environment(option: Option, prefix: str = "WEFT_") -> Any:
    text = os.environ.get(f"{prefix}{option.name.upper()}")
    if text is None:
        return option.default
    if option.name in _OF_DEVICES:
        return text or None
    if option.kind is not int:
        return _checked(option.name, text)
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{prefix}{option.name.upper()} takes an integer, got {text!r}") from None
    if option.name == "num_threads" and not 1 <= value <= 256:
        raise ValueError(f"WEFT_NUM_THREADS is between 1 and 256, got {text!r}")
    return value


def follow_jax_environment() -> None:
    """Set what ``JAX_<NAME>`` in the environment says, where no ``WEFT_<NAME>`` is; for programs that expect JAX."""
    for name, option in OPTIONS.items():
        if f"JAX_{name.upper()}" in os.environ and f"WEFT_{name.upper()}" not in os.environ:
            update(name, _from_environment(option, "JAX_"))
    if os.environ.get("JAX_PLATFORMS"):
        update("platforms", os.environ["JAX_PLATFORMS"])


def _intern(values: Values) -> int:
    with _lock:
        found = _tokens.setdefault(values, len(_interned))
        if found == len(_interned):
            _interned.append(values)
        return found


def _has_own() -> bool:
    """Whether this thread's token differs from the process-wide one."""
    return bool(_thread.overlay or _thread.axes or _thread.sizes or _thread.mesh is not NO_MESH or not _HAS_DEFAULT)


def _install_token() -> None:
    """Tell the native dispatcher which configuration the current thread runs under."""
    _thread.token = (-1, 0)
    runtime.set_config_token(token() if _has_own() else _FOLLOW)


def _install_default_token() -> None:
    """Tell the dispatcher the configuration of threads without a context of their own."""
    if _HAS_DEFAULT:
        users = tuple([_values[name] for name in _user_names])
        options = tuple([_values[name] for name in _KEY_NAMES])
        runtime.set_default_config_token(_intern(Values(options, users, (), 0, NO_MESH)))


def token() -> int:
    """The id of the interned tuple of values, on this thread, of all options that affect tracing or code."""
    version, known = _thread.token
    if version == _version:
        return known
    overlay = _thread.overlay
    version = _version
    options = tuple([overlay[name] if name in overlay else _values[name] for name in _KEY_NAMES])
    users = tuple([overlay[name] if name in overlay else _values[name] for name in _user_names])
    made = _intern(Values(options, users, _thread.axes, _thread.sizes, _thread.mesh))
    _thread.token = (version, made)
    return made


def values_of(token: int) -> Values:
    """The values whose id is a token."""
    return _interned[token]


def describe_difference(old: int, new: int) -> str:
    """What two tokens differ in: ``enable_x64 now True, before False``."""
    if max(old, new) >= len(_interned):
        return "an earlier configuration"
    before, now = _interned[old], _interned[new]
    names = (*_KEY_NAMES, "user contexts", "axis names", "unknown sizes", "mesh")
    pairs = zip(names, (*before.options, *before[1:]), (*now.options, *now[1:]), strict=True)
    changed = [(name, a, b) for name, a, b in pairs if a != b]
    return ", ".join(f"{name} now {b!r}, before {a!r}" for name, a, b in changed) or "none"


def read(name: str) -> Any:
    """The value of an option on the current thread."""
    overlay = _thread.overlay
    short = name if name in _values else _canonical(name)
    return overlay[short] if short in overlay else _values[short]


def version() -> int | None:
    """A number that changes with every option of the process; None where this thread has options of its own."""
    return None if _thread.overlay else _version


def update(name: str, value: Any) -> None:
    """Set an option for the process (threads inside a context of the same option keep the context's value)."""
    short = _canonical(name)
    checked = _checked(short, value)
    set_value(short, checked)
    if short == "num_threads":
        runtime.Pool.set_threads(checked or _STARTING_THREADS)
    if short == "collective_timeout":
        runtime.mpi_set_limits(WARN_SECONDS, checked)


def set_value(name: str, value: Any) -> None:
    """Set a checked value for the process."""
    global _version
    with _lock:
        _values[name] = value
        _version += 1
        _install_default_token()
    _install_token()


def all_values() -> dict[str, Any]:
    """Every option and its value on the current thread; ``weft.config.values`` is the same."""
    return {name: value for name, value in {**_values, **_thread.overlay}.items() if name not in _user_names}


def x64_enabled() -> bool:
    overlay = _thread.overlay
    return overlay["enable_x64"] if "enable_x64" in overlay else _values["enable_x64"]


def add_user_value(default: Any) -> str:
    """The name of a new value of the user's on which traces depend (``core.caches.user_contexts``)."""
    with _lock:
        name = f"user context {len(_user_names)}"
        _values[name] = default
        _user_names.append(name)
    set_value(name, default)
    return name


@contextlib.contextmanager
def overlaid(name: str, value: Any) -> Iterator[None]:
    overlay = _thread.overlay
    missing = name not in overlay
    saved = overlay.get(name)
    overlay[name] = value
    _install_token()
    try:
        yield
    finally:
        if missing:
            del overlay[name]
        else:
            overlay[name] = saved
        _install_token()


@contextlib.contextmanager
def _thread_with(**fields: Any) -> Iterator[None]:
    """Set these values of the thread, and its token."""
    before = {name: getattr(_thread, name) for name in fields}
    vars(_thread).update(fields)
    try:
        _install_token()
        yield
    finally:
        vars(_thread).update(before)
        _install_token()


def restored(token: int) -> AbstractContextManager[None]:
    """Set, on this thread, what a token stands for."""
    values = _interned[token]
    named = (*zip(_KEY_NAMES, values.options, strict=True), *zip(_user_names, values.users))
    overlay = {**_thread.overlay, **dict(named)}
    return _thread_with(overlay=overlay, axes=values.axes, sizes=values.sizes, mesh=values.mesh)


def bound_axes() -> tuple[tuple[Any, int], ...]:
    """(name, extent) of the named axes that are bound on this thread, the innermost last; see ``core.axis_names``."""
    return _thread.axes


def axes_bound(axes: tuple[tuple[Any, int], ...]) -> AbstractContextManager[None]:
    """Bind more named axes on this thread: they count as options do, since programs may hold their extents."""
    return _thread_with(axes=(*_thread.axes, *axes)) if axes else contextlib.nullcontext()


def sizes_open(number: int) -> AbstractContextManager[None]:
    """Trace for unknown sizes on this thread: nothing is shared with a trace of another number."""
    return _thread_with(sizes=number)


def mesh_state() -> MeshState:
    """The meshes that this thread has chosen."""
    return _thread.mesh


def choose_mesh(state: MeshState) -> None:
    """Choose meshes on this thread: they count as options do, since they change how programs are traced."""
    _thread.mesh = NO_MESH if state == NO_MESH else state
    _install_token()


def context(name: str, value: Any) -> Any:
    """A context manager (and decorator) under which option ``name`` has ``value`` on the current thread."""
    short = _canonical(name)
    if short in ("num_threads", "collective_timeout"):
        raise ValueError(f"[config] {short} holds for the process; set it with weft.config.update")
    return overlaid(short, _checked(short, value))


def _context_function(name: str, *defaults: Any) -> Callable[..., Any]:
    """``with weft.<name>(value):``, the value by position or as ``new_val``."""
    if not defaults and isinstance(OPTIONS[name].default if name in OPTIONS else INERT.get(name), bool):
        defaults = (True,)  # as in JAX: ``with weft.debug_nans():`` turns it on

    def enter(new_val: Any = defaults[0] if defaults else ...) -> Any:
        if new_val is ...:
            raise TypeError(f"[{name}] the context manager takes the new value as its argument")
        return context(name, new_val)

    enter.__name__ = enter.__qualname__ = name
    meaning = OPTIONS[name].meaning if name in OPTIONS else "accepted, without effect"
    enter.__doc__ = f"Context manager for the config option ``{name}``: {meaning}."
    return enter


CONTEXTS: dict[str, Callable[..., Any]] = {
    name: _context_function(name)
    for name in (
        "enable_x64", "numpy_dtype_promotion", "numpy_rank_promotion", "default_device", "debug_nans", "debug_infs",
        "log_compiles", "explain_cache_misses", "check_tracer_leaks", "default_matmul_precision", "enable_checks",
        "default_prng_impl", "threefry_partitionable", "enable_custom_prng", "softmax_custom_jvp",
        "fast", "legacy_prng_key", "debug_key_reuse", "transfer_guard",
        "transfer_guard_device_to_device", "transfer_guard_device_to_host", "transfer_guard_host_to_device",
        "allow_f16_reductions", "no_execution", "thread_guard", "array_garbage_collection_guard",
        "explicit_x64_dtypes",
    )
}  # fmt: skip
CONTEXTS["no_tracing"] = _context_function("no_tracing")
CONTEXTS["checking_leaks"] = _context_function("check_tracer_leaks", True)


def _disable_jit(disable: bool = True) -> Any:
    """Context manager for the config option ``disable_jit``: run jitted functions operation by operation."""
    return context("disable_jit", disable)


_disable_jit.__name__ = _disable_jit.__qualname__ = "disable_jit"
CONTEXTS["disable_jit"] = _disable_jit


class _ConfigModule(types.ModuleType):
    """Options also read as attributes, and are set as attributes: ``weft.config.debug_nans = True``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return all_values() if name == "values" else read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name.startswith("__"):
            super().__setattr__(name, value)
        else:
            update(name, value)


def _start() -> None:
    _values.update(INERT)
    _values.update({name: _from_environment(option) for name, option in OPTIONS.items()})
    _install_default_token()
    _install_token()


_start()
sys.modules[__name__].__class__ = _ConfigModule
