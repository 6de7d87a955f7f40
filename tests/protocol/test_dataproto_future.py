"""Results that are still being made."""

import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest
from same_proto import assert_same, example, labels

from openmanus_rl.protocol import DataProto, DataProtoError, DataProtoFuture


def later(result: object) -> "Future[object]":
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: result)


def test_the_results_are_concatenated_in_the_order_of_the_futures():
    data = example(4, step=1)
    future = DataProtoFuture.concat([later(data[:3]), later(data[3:])])
    assert_same(future.get(), data)


def test_each_chunk_of_a_future_gets_its_own_rows():
    data = example(4)
    chunks = DataProtoFuture.concat([later(data[:1]), later(data[1:])]).chunk(2)
    assert [labels(chunk.get()) for chunk in chunks] == [["row0", "row1"], ["row2", "row3"]]


def test_results_are_collected_with_the_given_function():
    future = DataProtoFuture(collect_fn=lambda results: results[1], futures=[later(example(1)), later(example(2))])
    assert len(future.get()) == 2


def test_a_missing_result_is_a_timeout_that_says_how_many_are_missing():
    future = DataProtoFuture.concat([later(example(1)), Future()])
    with pytest.raises(TimeoutError, match=r"1 of 2 results were not there after 0\.01 s"):
        future.get(timeout=0.01)


def test_a_workers_error_reaches_the_one_who_waits():
    failed: Future[DataProto] = Future()
    failed.set_exception(RuntimeError("the worker broke"))
    with pytest.raises(RuntimeError, match="the worker broke"):
        DataProtoFuture.concat([later(example(1)), failed]).get()


def test_a_result_that_is_no_proto_is_refused_with_its_place():
    with pytest.raises(DataProtoError, match="future 1 gave a dict"):
        DataProtoFuture.concat([later(example(1)), later({})]).get()


def test_a_chunk_of_a_future_can_be_sent_to_a_worker():
    chunk = DataProtoFuture.concat([]).chunk(2)[1]
    assert isinstance(pickle.loads(pickle.dumps(chunk)).dispatch_fn, partial)


def test_ray_references_are_collected_as_well():
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=1, include_dashboard=False)
    try:
        data = example(4)
        future = DataProtoFuture.concat([ray.put(data[:2]), ray.put(data[2:])])
        assert_same(future.get(timeout=240), data)
    finally:
        ray.shutdown()
