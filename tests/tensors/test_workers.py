import threading

import pytest
import torch

from xaibench.tensors.workers import background_threads

GPU = torch.device("cuda")


def test_work_beside_a_device_is_done_while_the_device_goes_on():
    here, gone_on = threading.get_ident(), threading.Event()

    def work():
        assert gone_on.wait(10), "whoever handed it over waited for it"
        return threading.get_ident()

    with background_threads(GPU) as submit:
        found = submit(work)
        gone_on.set()
        assert found() != here


def test_on_the_cpu_it_is_done_at_once_by_the_one_thread():
    with background_threads(torch.device("cpu")) as submit:
        done = []
        found = submit(lambda: done.append(threading.get_ident()))
        assert done == [threading.get_ident()]
        assert found() is None


def test_what_was_raised_there_is_raised_here():
    with pytest.raises(ZeroDivisionError), background_threads(GPU) as submit:
        submit(divmod, 1, 0)()
