import threading

from s6mod.engine.locks import Turn


def test_a_thread_that_wants_it_again_and_again_lets_others_have_it_in_between():
    turn, wants, order = Turn(), threading.Event(), []

    def other():
        wants.set()
        for _ in range(3):
            with turn:
                order.append("other")

    thread = threading.Thread(target=other)
    with turn, turn:  # its holder may take it again
        thread.start()
        wants.wait(60)
        while not turn._next.locked():
            pass
    for _ in range(3):
        with turn:
            order.append("one")
    thread.join()
    assert order[0] == "other"
    assert sorted(order) == ["one"] * 3 + ["other"] * 3
