"""Arrays and programs on two processes: the same results as in one."""

from __future__ import annotations

from tests.distributed import jobs

pytestmark = jobs.needs_mpi

# of tests/partitioning/programs.py, of each kind some
_WORDS = (
    "sin add_free add_conflict add_longer times_iota one_hot sum_cut max_cut var prod argmax_cut product_data "
    "product_summed product_fsdp product_batch concatenate_cut roll_cut sort_cut cumsum_cut dynamic_slice_cut "
    "dynamic_update_cut top_k_cut embedding_rows take_along scatter_add sgd_step mlp_grad_tensor layernorm_grad "
    "attention_heads attention_grad scan_layers_tensor scan_grad while_halving cond scan_inputs conv_grad "
    "max_pool_cut constraint_inside cross_entropy constants"
)
NAMES = _WORDS.split()


def test_programs_give_what_one_process_gives() -> None:
    done = jobs.run("programs_on_processes.py", *NAMES, JAX_NUM_CPU_DEVICES="2", WEFT_CHECK="0")
    assert done.status == 0, done
    words = done.out.split()
    assert int(words[0]) >= 30 and int(words[2]) <= 8, done


def test_collectives_in_programs_of_shards() -> None:
    done = jobs.run("shards_on_processes.py", JAX_NUM_CPU_DEVICES="2")
    assert done.status == 0 and done.out.count("all equal") == 2, done


def test_arrays_of_which_each_process_has_a_part() -> None:
    done = jobs.run("arrays_on_processes.py")
    assert done.status == 0 and done.out.count("as expected") == 2, done


def test_programs_that_differ_raise() -> None:
    done = jobs.run("arrays_on_processes.py", "differ")
    assert done.out.count("as expected") >= 1, done  # the end of one ends the job


def test_guards_in_programs_of_processes() -> None:
    done = jobs.run("checks_on_processes.py")
    assert done.status == 0 and done.out.count("checked") == 2, str(done)
