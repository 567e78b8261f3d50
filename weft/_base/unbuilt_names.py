"""Names that JAX documents and weft lacks, and the modules that JAX documents: written by docs/unbuilt.py."""

from __future__ import annotations

# fmt: off
FUNCTIONS: dict[str, str] = {
    "weft.experimental": """
        cur_qdd""",
    "weft.experimental.colocated_python": """
        colocated_cpu_devices colocated_python colocated_python_class""",
    "weft.experimental.compilation_cache.compilation_cache": """
        reset_cache set_cache_dir""",
    "weft.experimental.pallas.mosaic_gpu": """
        ACC Barrier BlockSpec ClusterBarrier CompilerParams CopyPartition GMEM Layout LoweringSemantics
        MemorySpace Mesh NDLoopInfo OOBFillMode PeerMemRef PipelinePipeline REGS RefType RefUnion Replicated
        SMEM SemaphoreSignal SemaphoreType ShapeDtypeStruct SwizzleTransform TMEM TMEMLayout Tiling
        TilingTransform TraceScope Transform TryClusterCancelResult WGMMAAccumulatorRef WarpMesh as_torch_kernel
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
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel": """
        make_splash_mha make_splash_mha_single_device make_splash_mqa""",
    "weft.experimental.pallas.tpu": """
        BufferType BufferedRef BufferedRefBase ChipVersion CoreType LoweringException Tiling TpuInfo
        core_barrier dma_semaphore emit_pipeline_with_allocations get_tpu_info get_tpu_info_for_chip
        matmul_acc_lhs matmul_pop matmul_push_rhs pack_elementwise sample_block stochastic_round to_pallas_key
        touch trace_value unpack_elementwise""",
    "weft.experimental.random": """
        stateful_rng""",
    "weft.experimental.xla_metadata": """
        set_xla_metadata""",
    "weft.extend.backend": """
        backend_xla_version get_compile_options register_backend_cache register_backend_factory""",
    "weft.extend.mlir": """
        deserialize_portable_artifact hlo_to_stablehlo refine_polymorphic_shapes serialize_portable_artifact""",
    "weft.extend.pallas": """
        register_lowering_rule""",
    "weft.extend.xla": """
        clear_hlo_module_transformation register_hlo_module_transformation""",
    "weft.interpreters.pxla": """
        are_hlo_shardings_equal array_mapping_to_axis_resources create_compile_options
        global_aval_to_result_handler global_avals_to_results_handler is_hlo_sharding_replicated
        op_sharding_to_indices""",
    "weft.nn": """
        get_scaled_dot_general_config""",
}

CLASSES: dict[str, str] = {
    "weft.experimental.custom_partitioning": """
        custom_partitioning""",
    "weft.experimental.hijax": """
        HiPspec HiType TransformedRef VJPHiPrimitive""",
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel": """
        BlockSizes SegmentIds""",
    "weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask": """
        CausalMask FullMask LocalMask Mask MultiHeadMask NumpyMask""",
    "weft.experimental.random": """
        StatefulPRNG""",
    "weft.extend.lowering": """
        LoweringRuleContext""",
    "weft.extend.pallas": """
        GridMapping""",
    "weft.extend.xla": """
        PipelineStage""",
    "weft.interpreters.pxla": """
        MeshComputation MeshExecutable""",
}

PRIMITIVES: dict[str, str] = {
    "weft.extend.core.primitives": """
        empty2_p random_gamma_p""",
    "weft.lax": """
        approx_top_k_p ragged_all_to_all_p rng_bit_generator_p sharding_constraint_p stage_p""",
}

MODULES = """
    weft.ad_checkpoint weft.checkpoint_policies weft.custom_batching weft.custom_derivatives weft.debug
    weft.distributed weft.dtypes weft.errors weft.example_libraries weft.example_libraries.optimizers
    weft.example_libraries.stax weft.experimental weft.experimental.array_serialization
    weft.experimental.buffer_callback weft.experimental.checkify weft.experimental.colocated_python
    weft.experimental.compilation_cache weft.experimental.compilation_cache.compilation_cache
    weft.experimental.compute_on weft.experimental.custom_partitioning weft.experimental.hijax
    weft.experimental.layout weft.experimental.mesh_utils weft.experimental.multihost_utils
    weft.experimental.ode weft.experimental.pallas weft.experimental.pallas.mosaic_gpu
    weft.experimental.pallas.ops weft.experimental.pallas.ops.tpu
    weft.experimental.pallas.ops.tpu.splash_attention
    weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel
    weft.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask weft.experimental.pallas.tpu
    weft.experimental.pallas.triton weft.experimental.pjit weft.experimental.profiler weft.experimental.random
    weft.experimental.serialize_executable weft.experimental.shard_alike weft.experimental.shard_map
    weft.experimental.sparse weft.experimental.sparse.linalg weft.experimental.xla_metadata weft.export
    weft.extend weft.extend.backend weft.extend.backend.ifrt_proxy weft.extend.core weft.extend.core.primitives
    weft.extend.ifrt_programs weft.extend.linear_util weft.extend.lowering weft.extend.mlir weft.extend.pallas
    weft.extend.sharding weft.extend.source_info_util weft.extend.xla weft.ffi weft.flatten_util weft.image
    weft.interpreters weft.interpreters.pxla weft.lax weft.lax.linalg weft.lib weft.monitoring weft.nn
    weft.nn.initializers weft.numpy weft.numpy.fft weft.numpy.linalg weft.ops weft.profiler weft.random
    weft.scipy weft.scipy.cluster weft.scipy.cluster.vq weft.scipy.fft weft.scipy.integrate
    weft.scipy.interpolate weft.scipy.linalg weft.scipy.ndimage weft.scipy.optimize weft.scipy.signal
    weft.scipy.sparse weft.scipy.sparse.linalg weft.scipy.spatial weft.scipy.spatial.transform
    weft.scipy.special weft.scipy.stats weft.scipy.stats.bernoulli weft.scipy.stats.beta
    weft.scipy.stats.betabinom weft.scipy.stats.binom weft.scipy.stats.cauchy weft.scipy.stats.chi2
    weft.scipy.stats.dirichlet weft.scipy.stats.expon weft.scipy.stats.gamma weft.scipy.stats.gennorm
    weft.scipy.stats.geom weft.scipy.stats.gumbel_l weft.scipy.stats.gumbel_r weft.scipy.stats.laplace
    weft.scipy.stats.logistic weft.scipy.stats.multinomial weft.scipy.stats.multivariate_normal
    weft.scipy.stats.nbinom weft.scipy.stats.norm weft.scipy.stats.pareto weft.scipy.stats.poisson
    weft.scipy.stats.t weft.scipy.stats.truncnorm weft.scipy.stats.uniform weft.scipy.stats.vonmises
    weft.scipy.stats.wrapcauchy weft.sharding weft.stages weft.test_util weft.tree weft.tree_util"""
