"""A graph network over two batched, padded graphs, with segment sums and attention, trained for a few steps."""

import jax
import jax.numpy as jnp
import jraph
from results import show

first = jraph.GraphsTuple(
    nodes=jnp.arange(6.0).reshape(3, 2), edges=jnp.ones((4, 1)), senders=jnp.array([0, 1, 2, 0]),
    receivers=jnp.array([1, 2, 0, 2]), n_node=jnp.array([3]), n_edge=jnp.array([4]), globals=jnp.zeros((1, 1)),
)  # fmt: skip
second = first._replace(nodes=-first.nodes, edges=2 * first.edges)
graph = jraph.pad_with_graphs(jraph.batch([first, second]), n_node=8, n_edge=10, n_graph=3)


def network(weights, graph):
    return jraph.GraphNetwork(
        update_edge_fn=lambda e, s, r, g: jnp.tanh(jnp.concatenate([e, s, r], 1) @ weights["edge"]),
        update_node_fn=lambda n, s, r, g: jnp.tanh(jnp.concatenate([n, s, r], 1) @ weights["node"]),
        update_global_fn=lambda n, e, g: jnp.concatenate([n, e], 1) @ weights["global"],
    )(graph)


keys = jax.random.split(jax.random.PRNGKey(0), 3)
weights = {
    "edge": jax.random.normal(keys[0], (5, 4)),
    "node": jax.random.normal(keys[1], (10, 3)),
    "global": jax.random.normal(keys[2], (7, 1)),
}


@jax.jit
def loss(weights):
    return jnp.sum(jraph.get_graph_padding_mask(graph)[:, None] * (network(weights, graph).globals - 1.0) ** 2)


losses = []
for _ in range(5):
    value, gradients = jax.value_and_grad(loss)(weights)
    weights = jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients)
    losses.append(value)
convolved = jraph.GraphConvolution(update_node_fn=lambda n: n @ jnp.eye(2), add_self_edges=True)(graph)
show(
    losses=jnp.array(losses),
    nodes=network(weights, graph).nodes,
    convolved=convolved.nodes,
    softmax=jraph.segment_softmax(jnp.arange(4.0), jnp.array([0, 0, 1, 1]), 2),
    unbatched=jraph.unbatch(graph)[1].nodes,
)
