"""The nodes of the IR: expressions, statements, blocks, buffers and functions.

Nodes are frozen dataclasses: constructors only store, equality and hashing are structural. Operators on expressions build
nodes (`a + b`, `a < b`) except `==`, which compares; `a.equal(b)` builds an equality. Folding belongs to `simplify`, checking to
`verify`, traversal to `traverse`.

Loop names and block names are unique within a function and are the handles of schedules. The iteration variables of a block
are visible only inside that block. Loop variables occur only in the bindings and predicates of blocks; programs without blocks,
such as lowered ones, use them freely.
"""

from .blocks import *  # noqa: F403
from .buffers import *  # noqa: F403
from .depth import *  # noqa: F403
from .expressions import *  # noqa: F403
from .foreign import *  # noqa: F403
from .functions import *  # noqa: F403
from .names import *  # noqa: F403
from .nodes import *  # noqa: F403
from .statements import *  # noqa: F403
