"""weft.scipy.stats.t: Student's distribution of ``df`` degrees of freedom."""

from weft.scipy.stats.continuous import T as _T

globals().update(_T.functions)
