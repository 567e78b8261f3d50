"""JAX's documented names, and the table of those that weft lacks: ``weft/_base/unbuilt_names.py``.

    python docs/unbuilt.py            # write the table anew
    python docs/unbuilt.py --print    # only print it

A test fails where the table is stale: when a name was built, or one was added here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from weft._base import unbuilt

TARGET = Path(__file__).resolve().parents[1] / "weft" / "_base" / "unbuilt_names.py"
WIDTH = 112  # columns of a line of names in the table
HEAD = '''"""Names that JAX documents and weft lacks, and the modules that JAX documents: written by docs/unbuilt.py."""

from __future__ import annotations

# fmt: off
'''

# What JAX documents: functions.
FUNCTIONS: dict[str, str] = {
    "weft": """
        array_garbage_collection_guard block_until_ready check_tracer_leaks checking_leaks checkpoint clear_caches
        closure_convert copy_to_host_async custom_gradient debug_infs debug_nans default_backend default_device
        default_matmul_precision default_prng_impl device_count device_get device_put devices disable_jit
        effects_barrier enable_checks enable_custom_prng enable_x64 ensure_compile_time_eval eval_shape fwd_and_bwd
        grad jit jvp linear_transpose linearize live_arrays local_device_count
        local_devices log_compiles make_array_from_callback make_array_from_process_local_data
        make_array_from_single_device_arrays make_jaxpr make_mesh named_call named_scope no_tracing
        numpy_dtype_promotion numpy_rank_promotion pmap print_environment_info process_count process_index
        process_indices pure_callback remat reshard shard_map transfer_guard transfer_guard_device_to_host
        transfer_guard_host_to_device typeof value_and_grad vjp""",
    "weft.ad_checkpoint": "checkpoint_name",
    "weft.checkpoint_policies": """
        checkpoint_dots checkpoint_dots_with_no_batch_dims dots_saveable dots_with_no_batch_dims_saveable
        everything_saveable nothing_saveable offload_dot_with_no_batch_dims save_and_offload_only_these_names
        save_any_names_but_these save_from_both_policies save_only_these_names""",
    "weft.custom_batching": "sequential_vmap",
    "weft.custom_derivatives": "zero_from_primal",
    "weft.debug": "breakpoint callback inspect_array_sharding print visualize_array_sharding visualize_sharding",
    "weft.distributed": "initialize is_initialized shutdown",
    "weft.dtypes": "canonicalize_dtype issubdtype itemsize_bits result_type scalar_type_of",
    "weft.example_libraries.optimizers": "adagrad adam momentum rmsprop rmsprop_momentum sgd sm3",
    "weft.example_libraries.stax": "Conv Dense FanOut MaxPool logsoftmax parallel serial",
    "weft.experimental": "cur_qdd io_callback",
    "weft.experimental.checkify": "ErrorCategory check check_error checkify",
    "weft.experimental.colocated_python": "colocated_cpu_devices colocated_python colocated_python_class",
    "weft.experimental.compilation_cache.compilation_cache": "reset_cache set_cache_dir",
    "weft.experimental.hijax": "register_hitype",
    "weft.experimental.layout": "with_layout_constraint",
    "weft.experimental.mesh_utils": "create_device_mesh create_hybrid_device_mesh",
    "weft.experimental.multihost_utils": """
        assert_equal broadcast_one_to_all global_array_to_host_local_array host_local_array_to_global_array
        process_allgather reached_preemption_sync_point sync_global_devices""",
    "weft.experimental.pallas": """
        broadcast_to cdiv core_map debug_check debug_print dot ds dslice empty empty_like get_global kernel loop
        multiple_of num_programs pallas_call program_id run_scoped semaphore_read semaphore_signal semaphore_wait
        when with_scoped""",
    "weft.experimental.pallas.triton": """
        approx_tanh atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor
        debug_barrier elementwise_inline_asm load max_contiguous store""",
    "weft.experimental.pallas.mosaic_gpu": """
        ACC Barrier BlockSpec ClusterBarrier CompilerParams CopyPartition GMEM Layout LoweringSemantics MemorySpace
        Mesh NDLoopInfo OOBFillMode PeerMemRef PipelinePipeline REGS RefType RefUnion Replicated SMEM
        SemaphoreSignal SemaphoreType ShapeDtypeStruct SwizzleTransform TMEM TMEMLayout Tiling TilingTransform
        TraceScope Transform TryClusterCancelResult WGMMAAccumulatorRef WarpMesh as_torch_kernel
        async_copy_scales_to_tmem async_copy_smem_to_tmem async_copy_sparse_metadata_to_tmem async_load_tmem
        async_prefetch async_store_smem async_store_tmem atomic_add atomic_and atomic_max atomic_min atomic_or
        atomic_xor barrier_arrive barrier_test barrier_wait broadcasted_iota cluster_ref commit_smem
        commit_smem_to_gmem_group commit_tmem copy_gmem_to_smem copy_smem_to_gmem dynamic_scheduling_loop
        emit_pipeline emit_pipeline_warp_specialized find_swizzle format_tcgen05_sparse_metadata
        griddepcontrol_launch_dependents griddepcontrol_wait inline_mgpu kernel layout_cast load multicast_ref
        multimem_load_reduce multimem_store nd_loop planar_snake print_layout query_cluster_cancel remote_ref
        semaphore_signal semaphore_signal_multicast semaphore_signal_parallel semaphore_wait set_max_registers
        tcgen05_commit_arrive tcgen05_mma transform_ref transpose_ref try_cluster_cancel wait_load_tmem
        wait_smem_to_gmem warp_map wgmma wgmma_accumulator_load wgmma_wait""",
    "weft.experimental.pallas.tpu": """
        BufferType BufferedRef BufferedRefBase ChipVersion CoreType LoweringException SideEffectType Tiling TpuInfo
        async_remote_copy bitcast core_barrier dma_semaphore einshape emit_pipeline_with_allocations
        force_tpu_interpret_mode get_barrier_semaphore get_tpu_info get_tpu_info_for_chip is_tpu_device
        make_async_remote_copy matmul_acc_lhs matmul_pop matmul_push_rhs pack_elementwise prng_random_bits prng_seed
        reset_tpu_interpret_mode_state run_on_first_core sample_block set_tpu_interpret_mode stateful_bernoulli
        stateful_bits stateful_normal stateful_uniform stochastic_round to_pallas_key touch trace_value
        unpack_elementwise with_memory_space_constraint""",
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel":
        "make_splash_mha make_splash_mha_single_device make_splash_mqa",
    "weft.experimental.pjit": "pjit",
    "weft.experimental.random": "stateful_rng",
    "weft.experimental.serialize_executable": "deserialize_and_load serialize",
    "weft.experimental.sparse": """
        bcoo_broadcast_in_dim bcoo_concatenate bcoo_dot_general bcoo_dot_general_sampled bcoo_dynamic_slice
        bcoo_extract bcoo_fromdense bcoo_gather bcoo_multiply_dense bcoo_multiply_sparse bcoo_reduce_sum
        bcoo_reshape bcoo_slice bcoo_sort_indices bcoo_squeeze bcoo_sum_duplicates bcoo_todense bcoo_transpose
        bcoo_update_layout bcsr_dot_general bcsr_extract bcsr_fromdense bcsr_todense coo_fromdense coo_matmat
        coo_matvec coo_todense csr_fromdense csr_matmat csr_matvec csr_todense empty eye grad random_bcoo sparsify
        todense value_and_grad""",
    "weft.experimental.sparse.linalg": "lobpcg_standard spsolve",
    "weft.experimental.xla_metadata": "set_xla_metadata",
    "weft.export": """
        default_export_platform deserialize export is_symbolic_dim register_namedtuple_serialization
        register_pytree_node_serialization symbolic_args_specs symbolic_shape""",
    "weft.extend.backend": """
        backend_xla_version backends clear_backends get_backend get_compile_options get_default_device
        register_backend_cache register_backend_factory""",
    "weft.extend.core": """
        Effects call_impl check_jaxpr concrete_or_error find_top_trace gensym get_opaque_trace_state jaxpr_as_fun
        jaxprs_in_params mapped_aval new_jaxpr_eqn nonempty_axis_env_DO_NOT_USE primal_dtype_to_tangent_dtype
        subjaxprs unmapped_aval unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE
        unsafe_get_axis_names_DO_NOT_USE valid_jaxtype""",
    "weft.extend.linear_util": """
        cache merge_linear_aux transformation transformation2 transformation_with_aux transformation_with_aux2
        wrap_init""",
    "weft.extend.mlir": """
        deserialize_portable_artifact hlo_to_stablehlo refine_polymorphic_shapes serialize_portable_artifact""",
    "weft.extend.pallas": "register_lowering_rule",
    "weft.extend.xla": "clear_hlo_module_transformation register_hlo_module_transformation",
    "weft.ffi": "ffi_call ffi_lowering pycapsule register_ffi_target register_ffi_type",
    "weft.flatten_util": "ravel_pytree",
    "weft.image": "resize scale_and_translate",
    "weft.interpreters.pxla": """
        are_hlo_shardings_equal array_mapping_to_axis_resources create_compile_options global_aval_to_result_handler
        global_avals_to_results_handler is_hlo_sharding_replicated op_sharding_to_indices""",
    "weft.lax": """
        ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike abs acos acosh add after_all all_gather
        all_to_all approx_max_k approx_min_k argmax argmin asin asinh atan atan2 atanh axis_index
        axis_size batch_matmul bessel_i0e bessel_i1e betainc bitcast_convert_type bitwise_and bitwise_not bitwise_or
        bitwise_xor broadcast broadcast_in_dim broadcast_like broadcast_shapes broadcast_to_rank broadcasted_iota
        cbrt ceil clamp clz collapse complex concatenate conj conv conv_dimension_numbers
        conv_general_dilated conv_general_dilated_local conv_general_dilated_patches conv_transpose
        conv_with_general_padding convert_element_type cos cosh cumlogsumexp cummax cummin cumprod cumsum
        custom_linear_solve custom_root digamma div dot dot_general dtype dynamic_index_in_dim dynamic_slice
        dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim empty eq
        erf erf_inv erfc exp exp2 expand_dims expm1 fft floor full full_like gather ge gt igamma
        igamma_grad_a igammac imag index_in_dim index_take integer_pow iota is_finite le lgamma log log1p logistic
        lt max min mul mulhi ne neg nextafter optimization_barrier pad padtype_to_pads pbroadcast
        pmax pmean pmin polygamma population_count pow ppermute pshuffle psum
        psum_scatter pswapaxes ragged_dot ragged_dot_general random_gamma_grad real reciprocal
        reduce reduce_and reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window
        reduce_xor rem reshape rev rng_bit_generator rng_uniform round rsqrt scaled_dot scatter scatter_add
        scatter_apply scatter_max scatter_min scatter_mul scatter_sub select select_n shift_left
        shift_right_arithmetic shift_right_logical sign sin sinh slice slice_in_dim sort sort_key_val split sqrt
        square squeeze stack stop_gradient sub tan tanh tile top_k transpose unstack
        with_sharding_constraint zeta""",
    "weft.lax.linalg": """
        cholesky cholesky_update eig eigh hessenberg householder_product lu lu_pivots_to_permutation ormqr qdwh qr
        schur svd symmetric_product triangular_solve tridiagonal tridiagonal_solve""",
    "weft.monitoring": """
        record_event record_event_duration_secs record_scalar register_event_duration_secs_listener
        register_event_listener register_scalar_listener""",
    "weft.nn": """
        celu dot_product_attention elu gelu get_scaled_dot_general_config glu hard_sigmoid hard_silu hard_swish
        hard_tanh identity leaky_relu log1mexp log_sigmoid log_softmax logmeanexp logsumexp mish one_hot relu relu6
        scaled_dot_general scaled_matmul selu sigmoid silu soft_sign softmax softplus sparse_plus sparse_sigmoid
        squareplus standardize swish tanh""",
    "weft.nn.initializers": """
        constant delta_orthogonal glorot_normal glorot_uniform he_normal he_uniform kaiming_normal kaiming_uniform
        lecun_normal lecun_uniform normal ones orthogonal truncated_normal uniform variance_scaling xavier_normal
        xavier_uniform zeros""",
    "weft.numpy": """
        abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis apply_over_axes arange
        arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort argwhere around
        array array_equal array_equiv array_repr array_split array_str asarray asin asinh astype atan atan2 atanh
        atleast_1d atleast_2d atleast_3d average bartlett bincount bitwise_and bitwise_count bitwise_invert
        bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman block broadcast_arrays
        broadcast_shapes broadcast_to can_cast cbrt ceil choose clip column_stack compress concat concatenate conj
        conjugate convolve copy copysign corrcoef correlate cos cosh count_nonzero cov cross cumprod cumsum
        cumulative_prod cumulative_sum deg2rad degrees delete diag diag_indices diag_indices_from diagflat diagonal
        diff digitize divide divmod dot dsplit dstack ediff1d einsum einsum_path empty empty_like equal exp exp2
        expand_dims expm1 extract eye fabs fill_diagonal flatnonzero flip fliplr flipud float_power floor
        floor_divide fmax fmin fmod frexp from_dlpack frombuffer fromfile fromfunction fromiter frompyfunc
        fromstring full full_like gcd geomspace get_printoptions gradient greater greater_equal hamming hanning
        heaviside histogram histogram2d histogram_bin_edges histogramdd hsplit hstack hypot i0 identity imag indices
        inner insert interp intersect1d invert isclose iscomplex iscomplexobj isdtype isfinite isin isinf isnan
        isneginf isposinf isreal isrealobj isscalar issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less
        less_equal lexsort linspace load log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
        logical_or logical_xor logspace mask_indices matmul matrix_transpose matvec max maximum mean median meshgrid
        min minimum mod modf moveaxis multiply nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean
        nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim negative nextafter nonzero
        not_equal ones ones_like outer packbits pad partition percentile permute_dims piecewise place poly polyadd
        polyder polydiv polyfit polyint polymul polysub polyval positive pow power printoptions prod promote_types
        ptp put put_along_axis quantile rad2deg radians ravel ravel_multi_index real reciprocal remainder repeat
        reshape resize result_type right_shift rint roll rollaxis roots rot90 round save savez searchsorted select
        set_printoptions setdiff1d setxor1d shape sign signbit sin sinc sinh size sort sort_complex spacing split
        sqrt square squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace
        transpose trapezoid tri tril tril_indices tril_indices_from trim_zeros triu triu_indices triu_indices_from
        true_divide trunc union1d unique unique_all unique_counts unique_inverse unique_values unpackbits
        unravel_index unstack unwrap vander var vdot vecdot vecmat vectorize vsplit vstack where zeros zeros_like""",
    "weft.numpy.fft": """
        fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq
        rfftn""",
    "weft.numpy.linalg": """
        cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power
        matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv
        tensorsolve trace vecdot vector_norm""",
    "weft.ops": "segment_max segment_min segment_prod segment_sum",
    "weft.profiler": """
        annotate_function device_memory_profile register_subprocess save_device_memory_profile start_server
        start_trace stop_server stop_trace trace""",
    "weft.random": """
        PRNGKey ball bernoulli beta binomial bits categorical cauchy chisquare choice clone dirichlet
        double_sided_maxwell exponential f fold_in gamma generalized_normal geometric gumbel key key_data key_dtype
        key_impl laplace loggamma logistic lognormal maxwell multinomial multivariate_normal normal orthogonal
        pareto permutation poisson rademacher randint rayleigh split t triangular truncated_normal uniform wald
        weibull_min wrap_key_data""",
    "weft.scipy.cluster.vq": "vq",
    "weft.scipy.fft": "dct dctn idct idctn",
    "weft.scipy.integrate": "trapezoid",
    "weft.scipy.linalg": """
        block_diag cho_factor cho_solve cholesky circulant companion convolution_matrix det dft eigh
        eigh_tridiagonal expm expm_frechet fiedler fiedler_companion funm hadamard hankel helmert hessenberg hilbert
        inv invhilbert invpascal leslie lu lu_factor lu_solve pascal polar qr qr_multiply rsf2csf schur solve
        solve_sylvester solve_triangular sqrtm svd toeplitz""",
    "weft.scipy.ndimage": "map_coordinates",
    "weft.scipy.optimize": "minimize",
    "weft.scipy.signal": "convolve convolve2d correlate correlate2d csd detrend fftconvolve istft stft welch",
    "weft.scipy.sparse.linalg": "bicgstab cg gmres",
    "weft.scipy.special": """
        bernoulli beta betainc betaln boxcox boxcox1p comb dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit
        expn factorial fresnel gamma gammainc gammaincc gammaln gammasgn hyp1f1 hyp2f1 i0 i0e i1 i1e kl_div log_ndtr
        log_softmax loggamma logit logsumexp lpmn lpmn_values multigammaln ndtr ndtri owens_t poch polygamma
        rel_entr sici softmax spence sph_harm_y wofz xlog1py xlogy zeta""",
    "weft.scipy.stats": "mode rankdata sem",
    "weft.scipy.stats.bernoulli": "cdf logpmf pmf ppf",
    "weft.scipy.stats.beta": "cdf logcdf logpdf logsf pdf sf",
    "weft.scipy.stats.betabinom": "logpmf pmf",
    "weft.scipy.stats.binom": "logpmf pmf",
    "weft.scipy.stats.cauchy": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.chi2": "cdf logcdf logpdf logsf pdf sf",
    "weft.scipy.stats.dirichlet": "logpdf pdf",
    "weft.scipy.stats.expon": "cdf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.gamma": "cdf logcdf logpdf logsf pdf sf",
    "weft.scipy.stats.gennorm": "cdf logpdf pdf",
    "weft.scipy.stats.geom": "logpmf pmf",
    "weft.scipy.stats.gumbel_l": "cdf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.gumbel_r": "cdf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.laplace": "cdf logpdf pdf",
    "weft.scipy.stats.logistic": "cdf isf logpdf pdf ppf sf",
    "weft.scipy.stats.multinomial": "logpmf pmf",
    "weft.scipy.stats.multivariate_normal": "logpdf pdf",
    "weft.scipy.stats.nbinom": "logpmf pmf",
    "weft.scipy.stats.norm": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.pareto": "cdf logcdf logpdf logsf pdf ppf sf",
    "weft.scipy.stats.poisson": "cdf entropy logpmf pmf",
    "weft.scipy.stats.t": "logpdf pdf",
    "weft.scipy.stats.truncnorm": "cdf logcdf logpdf logsf pdf sf",
    "weft.scipy.stats.uniform": "cdf logpdf pdf ppf",
    "weft.scipy.stats.vonmises": "logpdf pdf",
    "weft.scipy.stats.wrapcauchy": "logpdf pdf",
    "weft.sharding": "auto_axes get_abstract_mesh get_mesh reshard",
    "weft.stages": "CompilerOptions",
    "weft.test_util": "check_grads check_jvp check_vjp",
    "weft.tree": """
        all broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path reduce reduce_associative
        static structure transpose unflatten""",
    "weft.tree_util": """
        KeyPath all_leaves flatten_one_level flatten_one_level_with_keys is_tree_node keystr register_dataclass
        register_pytree_node register_pytree_node_class register_pytree_with_keys register_pytree_with_keys_class
        register_static tree_all tree_broadcast tree_flatten tree_flatten_with_path tree_leaves
        tree_leaves_with_path tree_map tree_map_with_path tree_reduce tree_reduce_associative tree_structure
        tree_transpose tree_unflatten treedef_children treedef_is_leaf treedef_tuple""",
}  # fmt: skip

# Classes.
CLASSES: dict[str, str] = {
    "weft": "Array Device NamedSharding P ShapeDtypeStruct custom_jvp custom_vjp set_mesh",
    "weft.custom_batching": "custom_vmap",
    "weft.custom_derivatives": "CustomVJPPrimal SymbolicZero",
    "weft.dtypes": "TypePromotionError bfloat16 prng_key",
    "weft.errors": """
        ConcretizationTypeError InconclusiveDimensionOperation JAXIndexError JAXTypeError JaxRuntimeError
        JaxprTypeError KeyReuseError NonConcreteBooleanIndexError TracerArrayConversionError
        TracerBoolConversionError TracerIntegerConversionError UnexpectedTracerError""",
    "weft.example_libraries.optimizers": "Optimizer",
    "weft.experimental.checkify": "Error JaxRuntimeError",
    "weft.experimental.custom_partitioning": "custom_partitioning",
    "weft.experimental.hijax": """
        AvalMutableQDD AvalQDD HiPrimitive HiPspec HiType MutableHiType TransformedRef VJPHiPrimitive aval_method
        aval_property""",
    "weft.experimental.layout": "Format Layout",
    "weft.experimental.pallas": "BlockSpec BoundedSlice Buffered CostEstimate GridSpec Indirect Slice",
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel": "BlockSizes SegmentIds",
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask":
        "CausalMask FullMask LocalMask Mask MultiHeadMask NumpyMask",
    "weft.experimental.pallas.triton": "CompilerParams",
    "weft.experimental.random": "StatefulPRNG",
    "weft.experimental.sparse": "BCOO BCSR COO CSC CSR JAXSparse",
    "weft.export": "DisabledSafetyCheck Exported SymbolicScope",
    "weft.extend.core": """
        AbstractToken CallPrimitive ClosedJaxpr DebugInfo DropVar Effect InconclusiveDimensionOperation Jaxpr
        JaxprEqn JaxprTypeError Literal Primitive Token TraceTag Var set_current_trace take_current_trace""",
    "weft.extend.linear_util": "StoreException WrappedFun",
    "weft.extend.lowering": "LoweringRuleContext",
    "weft.extend.pallas": "GridMapping",
    "weft.extend.xla": "PipelineStage",
    "weft.image": "ResizeMethod",
    "weft.interpreters.pxla": "MeshComputation MeshExecutable",
    "weft.lax": """
        AccuracyMode ConvDimensionNumbers DotAlgorithm DotAlgorithmPreset FftType GatherDimensionNumbers
        GatherScatterMode Precision RaggedDotDimensionNumbers RandomAlgorithm RoundingMethod ScatterDimensionNumbers
        Tolerance""",
    "weft.lax.linalg": "EigImplementation EighImplementation SvdAlgorithm",
    "weft.nn.initializers": "Initializer",
    "weft.numpy": """
        ComplexWarning character complexfloating dtype finfo flexible floating generic iinfo inexact integer ndarray
        number object_ signedinteger ufunc unsignedinteger""",
    "weft.profiler": "ProfileOptions StepTraceAnnotation TraceAnnotation",
    "weft.scipy.interpolate": "RegularGridInterpolator",
    "weft.scipy.optimize": "OptimizeResults",
    "weft.scipy.spatial.transform": "Rotation Slerp",
    "weft.scipy.stats": "gaussian_kde",
    "weft.sharding": """
        AbstractMesh AxisType ManualAxisType Mesh NamedSharding PartitionSpec Sharding SingleDeviceSharding set_mesh""",
    "weft.stages": "Compiled Lowered Traced Wrapped",
    "weft.tree_util": "DictKey FlattenedIndexKey GetAttrKey Partial PyTreeDef SequenceKey",
}  # fmt: skip

# Primitives, under the names of the module's attributes.
PRIMITIVES: dict[str, str] = {
    "weft.lax": """
        abs_p acos_p acosh_p add_p after_all_p all_gather_p all_to_all_p and_p approx_top_k_p argmax_p argmin_p
        asin_p asinh_p atan2_p atan_p atanh_p axis_index_p bessel_i0e_p bessel_i1e_p bitcast_convert_type_p
        broadcast_in_dim_p cbrt_p ceil_p clamp_p clz_p complex_p concatenate_p cond_p conj_p
        conv_general_dilated_p convert_element_type_p copy_p cos_p cosh_p create_token_p cumlogsumexp_p cummax_p
        cummin_p cumprod_p cumsum_p dce_sink_p device_put_p digamma_p div_p dot_general_p dynamic_slice_p
        dynamic_update_slice_p eq_p eq_to_p erf_inv_p erf_p erfc_p exp2_p exp_p expm1_p fft_p floor_p gather_p
        ge_p gt_p igamma_grad_a_p igamma_p igammac_p imag_p integer_pow_p iota_p is_finite_p le_p le_to_p
        lgamma_p linear_solve_p log1p_p log_p logistic_p lt_p lt_to_p max_p min_p mul_p mulhi_p ne_p neg_p
        nextafter_p not_p optimization_barrier_p or_p pad_p pmax_p pmin_p polygamma_p population_count_p pow_p
        ppermute_p psum_p ragged_all_to_all_p real_p reduce_and_p reduce_max_p reduce_min_p reduce_or_p reduce_p
        reduce_precision_p reduce_prod_p reduce_sum_p reduce_window_max_p reduce_window_min_p reduce_window_p
        reduce_window_sum_p reduce_xor_p regularized_incomplete_beta_p rem_p reshape_p rev_p rng_bit_generator_p
        rng_uniform_p round_p rsqrt_p scan_p scatter_add_p scatter_max_p scatter_min_p scatter_mul_p scatter_p
        scatter_sub_p select_and_gather_add_p select_and_scatter_add_p select_and_scatter_p select_n_p
        sharding_constraint_p shift_left_p shift_right_arithmetic_p shift_right_logical_p sign_p sin_p sinh_p
        slice_p sort_p split_p sqrt_p square_p squeeze_p stack_p stage_p stop_gradient_p sub_p tan_p tanh_p
        tile_p top_k_p transpose_p unstack_p while_p xor_p zeta_p""",
    "weft.extend.core.primitives": "empty2_p random_gamma_p",
}

# Modules with no name in the tables.
EMPTY_MODULES = """
    weft.experimental.array_serialization weft.experimental.buffer_callback
    weft.experimental.compilation_cache weft.experimental.compute_on weft.experimental.ode
    weft.experimental.profiler weft.experimental.shard_alike weft.experimental.shard_map weft.extend
    weft.extend.backend.ifrt_proxy weft.extend.core.primitives weft.extend.ifrt_programs weft.extend.sharding
    weft.extend.source_info_util weft.lib weft.scipy weft.scipy.cluster weft.scipy.sparse weft.scipy.spatial"""


def lacking(module: str, names: list[str]) -> Iterator[str]:
    """Those names of a module that are not built."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError:  # it is new here, and not in the table yet
        loaded = None
    for name in names:
        value = getattr(loaded, name, None)
        said = getattr(value, "__doc__", None) or ""
        if value is None or type(value) is unbuilt.StubPrimitive or said.startswith("Not built yet"):
            yield name


def lines(names: list[str], indent: str) -> str:
    """Names in lines of a fixed width."""
    found, line = list[str](), ""
    for name in names:
        if len(line) + len(name) >= WIDTH:
            found.append(line)
            line = ""
        line = f"{line} {name}" if line else f"{indent}{name}"
    return "\n".join([*found, line])


def table() -> str:
    """The text of the file."""
    blocks = []
    for name, names in (("FUNCTIONS", FUNCTIONS), ("CLASSES", CLASSES), ("PRIMITIVES", PRIMITIVES)):
        entries = []
        for module in sorted(names):
            if left := sorted(lacking(module, names[module].split())):
                entries.append(f'    "{module}": """\n{lines(left, " " * 8)}""",\n')
        blocks.append(f"{name}: dict[str, str] = {{\n{''.join(entries)}}}\n")
    named = {*FUNCTIONS, *CLASSES, *EMPTY_MODULES.split()}
    parents = {".".join(name.split(".")[:length]) for name in named for length in range(2, name.count(".") + 1)}
    modules = lines(sorted((named | parents) - {"weft"}), "    ")
    return HEAD + "\n".join(blocks) + f'\nMODULES = """\n{modules}"""\n'


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(table())
    else:
        TARGET.write_text(table(), encoding="utf-8")
