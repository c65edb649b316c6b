"""How far grants are lowered on a GPU that is granted beyond its size."""

from hypothesis import given
from hypothesis import strategies as st
from local.doctor.examining import GIB

from cotenant.hardware import slots
from cotenant.local.doctor.lowering import Held, lowered


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=2),
        st.tuples(st.integers(1, 64), st.integers(0, 64)),
        max_size=8,
    ),
    st.integers(0, 200),
)
def test_lowering_keeps_what_is_used_and_takes_no_more_than_needed(sizes, capacity):
    grants = {name: Held(granted * GIB, min(granted, used) * GIB) for name, (granted, used) in sizes.items()}
    after = {name: held.granted for name, held in grants.items()} | lowered(grants, capacity * GIB)
    assert all(after[name] >= held.used for name, held in grants.items())
    assert all(0 < after[name] <= held.granted for name, held in grants.items())
    total = sum(after.values())
    most = max(capacity * GIB, sum(held.used for held in grants.values()))
    assert total <= most + len(grants) * slots.GRANULE
    before = sum(held.granted for held in grants.values())
    assert total >= min(before, capacity * GIB) - len(grants)
