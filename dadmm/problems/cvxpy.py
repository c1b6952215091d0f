"""Any convex objective with constraints, written in cvxpy, which compiles it once.

A proximal step adds its weight to the diagonal of P, and is solved by Clarabel. Its
unknown is the distance from the centre, so that heavy weights lose no digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.classes import require
from dadmm.core.errors import ProblemError, shown
from dadmm.core.layout import Layout, Vector
from dadmm.problems.base import WithStart

if TYPE_CHECKING:
    from clarabel import DefaultSolver
    from cvxpy import Problem, Variable

Sparse = Any  # scipy.sparse.csc_array or csr_array
# Clarabel's tolerances: of quadratic programs, of other cones, where it often makes no
# progress beyond, and where it makes none before
QUADRATIC, CONIC, ALMOST = 1e-10, 1e-8, 1e-6
SOLVED = ("Solved", "AlmostSolved")
REASONS = {
    "PrimalInfeasible": "is infeasible: no point satisfies its constraints",
    "DualInfeasible": "is unbounded below in its private variables",
}


class Program(NamedTuple):
    """1/2 x'P x + q'x over ``A x + s = b`` with s in a cone."""

    P: Sparse  # (n, n), symmetric
    q: Vector  # (n,)
    A: Sparse  # (m, n)
    b: Vector  # (m,)
    dims: Any  # of the cones, as cvxpy has them; equations are first
    columns: NDArray[np.intp]  # (size,) of the entries of theta in x


class Cvxpy(WithStart):
    """f is a problem of cvxpy, with private variables if it has more than are shared.

    ``theta`` holds the shared variables and then the private ones, by their names in
    cvxpy; those without a name are ``x0``, ``x1``, ... and ``private0``, ``private1``,
    ... This class needs the extra ``dadmm[cvxpy]``.

    Parameters
    ----------
    problem : cvxpy.Problem
        To minimise; convex by the rules of cvxpy (DCP), with real variables. Its
        parameters keep their present values.
    variables : sequence of cvxpy.Variable, or dict of str to cvxpy.Variable
        The variables on which the nodes agree; a dict gives them names. All others are
        private to the node. All nodes must have the same names and shapes.

    Examples
    --------
    >>> import cvxpy as cp
    >>> w = cp.Variable(2, name="w")
    >>> problem = Cvxpy(cp.Problem(cp.Minimize(cp.norm1(w - 3)), [w <= 1]), [w])
    >>> problem.layout
    Layout.of(w=(2,))
    >>> problem.prox(np.zeros(2), None, np.zeros(2), 0.1).round(6)
    array([1., 1.])
    """

    convex = True

    def __init__(
        self, problem: Problem, variables: Sequence[Variable] | Mapping[str, Variable]
    ) -> None:
        for package in ("clarabel", "cvxpy", "scipy"):
            require(package, "Cvxpy", "cvxpy", ProblemError)
        from scipy import sparse

        _check_problem(problem)
        shared, private = _parts(problem, variables)
        parts = shared | private
        shapes = {name: tuple(v.shape) for name, v in parts.items()}
        self.layout = Layout(shapes, list(private))
        self._objective, self._variables = problem.objective.expr, [*parts.values()]
        self._parameters = [(p, p.value) for p in problem.parameters()]
        self._program = _eliminate(_compile(problem, self._variables))
        # the upper triangle of P, with the diagonal of the shared entries
        self._shared = self._program.columns[: self.layout.shared_size]
        E = sparse.csr_array(sparse.eye(len(self._program.q)))[:, self._shared]
        self._upper = sparse.triu(self._program.P + E @ E.T).tocsc()
        self._upper.sort_indices()
        self._solver = _new_solver(self._program, self._upper)
        self._start, status = self._solve(np.zeros(self.layout.size), 1.0)
        if status not in SOLVED:
            reason = REASONS.get(status.removeprefix("Almost"))
            reason = reason or f"was not solved by Clarabel, which says {status}"
            raise ProblemError(f"the problem of Cvxpy {reason}")

    def prox(self, theta: Vector, stats: None, centre: Vector, weight: float) -> Vector:
        """Return the argmin of f and the proximal term of shared variables, (size,)."""
        found, status = self._solve(centre, weight)
        if status not in SOLVED:
            raise np.linalg.LinAlgError(f"Clarabel says {status}")
        return found

    def _value(self, theta: Vector) -> float:
        # Without the constraints: nodes agree up to a tolerance only, and an infinite
        # value would stop schemes that compare objectives.
        for parameter, value in self._parameters:
            parameter.save_value(value)
        parts = self.layout.views(theta)
        for variable, part in zip(self._variables, parts, strict=True):
            variable.save_value(np.array(part))
        return float(np.reshape(self._objective.value, ()))

    def _solve(self, centre: Vector, weight: float) -> tuple[Vector, str]:
        P, q, A, b, _, columns = self._program
        c = np.zeros(len(q))
        c[columns] = centre
        ends = self._upper.indptr[1:][self._shared]
        values = self._upper.data.copy()
        values[ends - 1] += weight - 1.0  # the last entry of a column is its diagonal
        slope = q + P @ c
        size = max(np.abs(values).max(initial=0.0), np.abs(slope).max()) or 1.0
        self._solver.update(P=values / size, q=slope / size, b=b - A @ c)
        found = self._solver.solve()
        return (c + np.array(found.x))[columns], str(found.status)


def _check_problem(problem: Problem) -> None:
    import cvxpy

    if not isinstance(problem, cvxpy.Problem):
        raise ProblemError(f"Cvxpy needs a cvxpy.Problem, got {type(problem).__name__}")
    unset = [p.name() for p in problem.parameters() if p.value is None]
    discrete = [
        v.name() for v in problem.variables()
        if v.attributes["boolean"] or v.attributes["integer"] or v.is_complex()
    ]  # fmt: skip
    for fault, wanted in (
        (isinstance(problem.objective, cvxpy.Maximize), "to minimise: Minimize(-...)"),
        (not problem.variables(), "with variables"),
        (unset, f"whose parameters have values; {', '.join(unset)} has none"),
        (discrete, f"of real variables; {', '.join(discrete)} is not continuous"),
        (not unset and not problem.is_dcp(), "that is convex by the rules of cvxpy, "
         "https://www.cvxpy.org/tutorial/dcp; problem.is_dcp() is False"),
    ):  # fmt: skip
        if fault:
            raise ProblemError(f"Cvxpy needs a problem {wanted}")


def _is_valid(name: object) -> bool:
    """Return whether a part of a layout, a namedtuple, can have this name."""
    text = name if isinstance(name, str) else ""
    return text.isidentifier() and not text.startswith("_") and not iskeyword(text)


def _parts(
    problem: Problem, variables: object
) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Return the shared and the private variables by name."""

    def name(variable: Variable, default: str) -> str:
        given = variable.name() if hasattr(variable, "name") else ""
        own = given != f"var{getattr(variable, 'id', '')}"
        return given if own and _is_valid(given) else default

    shared: dict[str, Variable] = {}
    if isinstance(variables, Mapping):
        shared = dict(variables)
    elif isinstance(variables, Sequence):
        shared = {name(v, f"x{k}"): v for k, v in enumerate(variables)}
    inside = {variable.id: variable for variable in problem.variables()}
    known = {getattr(variable, "id", None) for variable in shared.values()}
    others = [v for v in inside.values() if v.id not in known]
    private = {name(v, f"private{k}"): v for k, v in enumerate(others)}
    words = ", ".join(variable.name() for variable in inside.values())
    for own, variable in shared.items():
        fault = "" if _is_valid(own) else "a name in Python without a leading _"
        if getattr(variable, "id", None) not in inside:
            fault = f"a variable of the problem, which has {words}"
        if fault:
            raise ProblemError(f"Cvxpy: {own!r} in variables is not {fault}")
    if not shared or len(shared | private) < len(inside) or len(known) < len(variables):  # type: ignore[arg-type]
        raise ProblemError(
            "Cvxpy needs variables, a list or a dict of at least one, each once, and "
            f"variables with different names, got {shown(variables)} of {words}"
        )
    return shared, private


def _compile(problem: Problem, variables: Sequence[Variable]) -> Program:
    import cvxpy
    from scipy import sparse

    # cvxpy replaces variables with attributes, such as nonneg; their equals are kept
    plain = [
        cvxpy.Variable(v.shape) if any(v.attributes.values()) else v for v in variables
    ]
    equal = [u == v for u, v in zip(plain, variables, strict=True) if u is not v]
    whole = cvxpy.Problem(problem.objective, problem.constraints + equal)
    try:
        data = whole.get_problem_data(cvxpy.CLARABEL)[0]
    except (cvxpy.error.SolverError, cvxpy.error.DCPError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ProblemError(f"Cvxpy cannot compile the problem: {text}") from error
    first = data["param_prob"].var_id_to_col
    columns = [
        first[v.id] + np.arange(v.size).reshape(v.shape, order="F").ravel()
        for v in plain
    ]
    q, A, b = np.asarray(data["c"]), sparse.csc_array(data["A"]), np.asarray(data["b"])
    P = data.get("P")
    P = sparse.csc_array((len(q), len(q)) if P is None else P)
    return Program(P, q, A, b, data["dims"], np.concatenate(columns))


def _eliminate(program: Program) -> Program:
    """Return a program with the same solutions and fewer unknowns, if it is smaller.

    cvxpy has new unknowns equal to ``X w - y`` for a sum of its squares. An unknown
    that is in one row only, an equation, is replaced by what it equals: ``x = S v + s``
    with v the others. Then the number of rows of X does not matter.
    """
    from scipy import sparse

    P, q, A, b, dims, columns = program
    alone = np.diff(A.indptr) == 1
    alone[columns] = False
    gone = np.flatnonzero(alone)
    rows = A.indices[A.indptr[gone]]
    rows, first = np.unique(rows[rows < dims.zero], return_index=True)
    gone = gone[A.indices[A.indptr[gone]] < dims.zero][first]
    if not len(gone):
        return program
    left = np.setdiff1d(np.arange(len(q)), gone)
    others = np.setdiff1d(np.arange(len(b)), rows)
    factors = 1.0 / A.data[A.indptr[gone]]
    by_row = A.tocsr()
    replaced = by_row[rows][:, left] * factors[:, None]
    eye = sparse.csr_array(sparse.eye(len(q)))
    S = eye[:, left] - eye[:, gone] @ replaced
    shift = np.zeros(len(q))
    shift[gone] = factors * b[rows]
    smaller, rest = (S.T @ P @ S).tocsc(), by_row[others][:, left].tocsc()
    if smaller.nnz + rest.nnz > P.nnz + A.nnz:
        return program
    dims = copy(dims)
    dims.zero -= len(rows)
    places = np.searchsorted(left, columns)
    return Program(smaller, S.T @ (q + P @ shift), rest, b[others], dims, places)


def _new_solver(program: Program, upper: Sparse) -> DefaultSolver:
    import clarabel
    from cvxpy.reductions.solvers.conic_solvers import clarabel_conif

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    # both would change the program, so that its data could not be updated
    settings.presolve_enable = settings.chordal_decomposition_enable = False
    _, q, A, b, dims, _ = program
    cones: list[Any] = clarabel_conif.dims_to_solver_cones(dims)  # type: ignore[no-untyped-call]
    tolerance = QUADRATIC if dims.zero + dims.nonneg == len(b) else CONIC
    for name in ("gap_abs", "gap_rel", "feas"):
        setattr(settings, f"tol_{name}", tolerance)
        setattr(settings, f"reduced_tol_{name}", ALMOST)
    return clarabel.DefaultSolver(upper, q, A, b, cones, settings)
