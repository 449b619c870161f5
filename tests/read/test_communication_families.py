"""Which kernels communicate, by their names."""

from __future__ import annotations

import re

import pytest

from taut.core.tables import Verb
from taut.read.communication_families import FAMILIES, communication, is_communication, own_name

COMMUNICATES = {
    # NCCL and RCCL of all generations
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("nccl", "all-reduce"),
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": ("nccl", "all-reduce"),
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": ("nccl", "all-reduce"),
    "void ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)": ("nccl", "reduce-scatter"),
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)": ("nccl", "all-gather"),
    "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)": ("nccl", "broadcast"),
    "ncclDevKernel_Reduce_Sum_f32_RING_LL": ("nccl", "reduce"),
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)": ("nccl", "all-reduce"),
    "ncclSymkDevKernel_ReduceScatter_LL_sum_f32": ("nccl", "reduce-scatter"),
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": ("nccl", "none"),
    "ncclSendRecvKernel_copy_i8(ncclColl)": ("nccl", "none"),
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)": ("nccl", "none"),
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>) [clone .kd]": ("nccl", "none"),
    "rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)": ("nccl", "none"),
    "mscclKernel_Sum_half_LL(ncclDevComm*)": ("nccl", "none"),
    # MSCCL++
    "void mscclpp::collective::allreducePacket<__half>(void*)": ("mscclpp", "all-reduce"),
    "mscclpp::collective::allgatherFullmesh2(void*)": ("mscclpp", "all-gather"),
    "void mscclpp::collective::alltoallvKernel(int)": ("mscclpp", "all-to-all"),
    # expert parallelism
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)": ("deep_ep", "all-to-all"),
    "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*)": ("deep_ep", "all-to-all"),
    "void deep_ep::intranode::combine<__nv_bfloat16, 8>(int)": ("deep_ep", "all-to-all"),
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*)": ("deep_ep", "all-to-all"),
    "void dpsk::ep::internode::cached_notify<false>(int, int)": ("deep_ep", "barrier"),
    "void deep_ep::intranode::notify_dispatch<8>(int const*, int*)": ("deep_ep", "all-to-all"),
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*)": ("deep_ep", "barrier"),
    "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *)": ("deep_ep", "none"),
    "void deep_ep::internode_ll::combine<false, 6144, 11, 4>(void*)": ("deep_ep", "none"),
    "void deep_ep::internode_ll::clean_low_latency_buffer<32>(int*)": ("deep_ep", "none"),
    "hybrid_ep::dispatch_kernel<int>(int)": ("hybrid_ep", "none"),
    "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(int)": ("mori", "none"),
    "EpCombineIntraNodeKernel_bf16": ("mori", "none"),
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int)": ("trtllm moe", "all-to-all"),
    "moeA2ACombineKernel": ("trtllm moe", "all-to-all"),
    "moeA2APrepareDispatchKernel(int)": ("trtllm moe", "none"),
    # NVSHMEM
    "void nvshmemi_proxy_quiet_entry<int>()": ("nvshmem", "none"),
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": ("nvshmem", "barrier"),
    "nvshmem_putmem_kernel": ("nvshmem", "none"),
    "alltoall_on_stream_kernel<float>(int)": ("nvshmem", "none"),
    # symmetric memory
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": ("symm_mem", "all-reduce"),
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>()": ("symm_mem", "all-reduce"),
    "void <unnamed>::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(int)": ("symm_mem", "all-reduce"),
    "one_shot_all_reduce_kernel": ("symm_mem", "all-reduce"),
    "multimem_all_gather_kernel<16>(int)": ("symm_mem", "all-gather"),
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)": ("symm_mem", "barrier"),
    "c10d::symmetric_memory::put_signal_kernel(unsigned int**)": ("symm_mem", "none"),
    # custom all-reduce
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": ("custom all-reduce", "all-reduce"),
    "void sglang::cross_device_reduce_2stage<__half, 8>(RankData*)": ("custom all-reduce", "all-reduce"),
    "_ZN5aiter26cross_device_reduce_2stageIDF16bLi8ELb0EEEv": ("custom all-reduce", "all-reduce"),
    "void aiter::reduce_scatter_cross_device_store<bf16, 8>(RankData*)": ("custom all-reduce", "reduce-scatter"),
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>, __half>()": ("custom all-reduce", "all-reduce"),
    # TensorRT-LLM, FlashInfer
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 8>(int)": (
        "trtllm all-reduce",
        "all-reduce",
    ),
    "void flashinfer::trtllm_moe_allreduce_fusion::moereduce_allreduce_fusion_kernel_oneshot_lamport<8>(int)": (
        "trtllm all-reduce",
        "all-reduce",
    ),
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8, true>(int)": ("trtllm all-reduce", "all-reduce"),
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float>(int)": ("trtllm all-reduce", "all-reduce"),
    "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8>(int)": ("trtllm all-reduce", "all-reduce"),
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8>(int)": ("trtllm all-reduce", "none"),
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": ("userbuffers", "none"),
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int)": ("userbuffers", "none"),
    # other vendors, and what says so by name
    "oneccl_allreduce_pcie": ("oneccl", "all-reduce"),
    "hcom_allReduce__606_0_1": ("hccl", "all-reduce"),
    "HcclAllGather": ("hccl", "all-gather"),
    "allreduce_two_shot_multimem_intra_node_kernel": ("other", "none"),
    "my_lib::AllReduceKernel(int)": ("other", "none"),
    "ring_reduce_scatter_push_kernel": ("other", "none"),
}

COMPUTES = """
void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>(int)
void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>(int)
void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<ncclFunctor>>(int)
void at::native::unrolled_elementwise_kernel<all_reduce_functor>(int)
void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)
void at::native::index_elementwise_kernel<128, 4>(int)
at::native::indexFuncLargeIndex
void cub::CUB_200200_800_NS::DeviceReduceKernel<cub::DeviceReducePolicy<float>>(int)
void cub::DeviceScanKernel<cub::DispatchScan<int>>(int)
void cub::detail::DispatchScanKernel<int>(int)
void thrust::cuda_cub::core::_kernel_agent<thrust::reduce>(int)
gemm
gemm_allreduce_kernel
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64
nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNN
ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn
Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256
void cutlass::Kernel<AllReduceEpilogue>(int)
void cutlass::device_kernel<flash::FlashAttnFwdSm90<ReduceScatter>>(int)
void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(int)
flash_fwd_splitkv_combine
kernel_unified_attention_3d
reduce_segments
_sum_bitmatrix_rows
_combined_routing_compute
_finalize_matmul_scatter_bf16
triton_poi_fused_all_reduce_wait_tensor_add_0
triton_red_fused_all_gather_into_tensor_1
triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_2
small_reduce_kernel
scatter_kernel
gather_kernel
index_reduce_kernel
void dispatch_kernel<int>(int)
moe_dispatch_sort
void vllm::moe::moe_align_block_size_kernel<int>(int)
void vllm::moe::topkGatingSoftmax<8>(int)
_fwd_kernel_ep_scatter_2
_fwd_kernel_ep_gather
void deep_ep::layout::get_dispatch_layout<256, 32>(long const*)
void aiter::local_device_load_rmsnorm_512n<bf16, 8>(int)
void vllm::rms_norm_kernel<c10::BFloat16>(int)
void tensorrt_llm::kernels::finalizeMoeRoutingKernel<float>(int)
void WarpAllReduceSoftmax<float>(int)
block_all_reduce_sum_f32
void splitKreduce_kernel<32, 16, int, float>(int)
void (anonymous namespace)::softmax_warp_forward<float, float, 8>(int)
void at::native::batch_norm_collect_statistics_kernel<float>(int)
batched_transpose_16x32_half
void multi_tensor_apply_kernel<TensorListMetadata<4>, AllReduceFunctor>(int)
_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm_b
_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipeline
__amd_rocclr_copyBuffer
__amd_rocclr_fillBufferAligned
void sync_bn_reduce_backward<float>(int)
fused_moe_kernel
broadcast_kernel
copy_out_all_gather_kernel
void reduce_1Block_kernel<float, 128, 7>(int)
cudnn::bn_fw_tr_1C11_singleread
ccc_kernel
pe_exe
""".strip().splitlines()


@pytest.mark.parametrize(("kernel", "known"), COMMUNICATES.items())
def test_kernels_that_communicate(kernel: str, known: tuple[str, str]) -> None:
    """Their family, and the verb where ranks meet in them."""
    found = communication(kernel)
    assert found is not None
    assert (found.family, found.verb.word) == known


@pytest.mark.parametrize("kernel", COMPUTES)
def test_kernels_that_compute(kernel: str) -> None:
    """Words of communication in template arguments, or for work inside one device, are no communication."""
    assert not is_communication(kernel)


def test_enough_names_are_held() -> None:
    assert min(len(COMMUNICATES), len(COMPUTES)) >= 40


def test_only_send_and_receive_kernels_hold_hops() -> None:
    """A generic kernel of RCCL may be anything."""
    hops = [name for name in COMMUNICATES if communication(name).hops]  # type: ignore[union-attr]
    assert [re.sub(r"\(.*", "", name) for name in hops] == ["ncclDevKernel_SendRecv", "ncclSendRecvKernel_copy_i8"]


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("void a::b<c::d>(e*)", "a::b"),
        ("void (anonymous namespace)::f<int>(int)", "_::f"),
        ("void at::native::<unnamed>::f<int>(int)", "at::native::_::f"),
        ("unsigned int f(int)", "f"),
        ("f [clone .kd]", "f"),
        ("_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIfEEv", "_::multimem_all_reduce_kernel"),
        ("_Z13all_to_all_v_i", "all_to_all_v_"),
        ("_Z99f", "f"),
        ("_Z", ""),
        ("", ""),
        ("(", "("),
        ("<", "<"),
    ],
)
def test_the_own_name_of_a_kernel(kernel: str, own: str) -> None:
    assert own_name(kernel) == own


def test_the_table_is_sound() -> None:
    """A family that meets nobody claims no gate, and every family says what it is called."""
    assert all(one.name and one.pattern for one in FAMILIES)
    assert all(one.verb is not Verb.NONE or not one.meets for one in FAMILIES)
