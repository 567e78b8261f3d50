"""Images cut into patches, pooled, repeated and multiplied by names of axes."""

import jax
import jax.numpy as jnp
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from results import show

images = jax.random.normal(jax.random.key(0), (2, 8, 12, 3))


@jax.jit
def patches(x):
    return rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=4, q=3)


joined, shapes = pack([images, images[..., :1]], "b h w *")
back = unpack(joined, shapes, "b h w *")[0]
weights = jax.random.normal(jax.random.key(1), (5, 3))
show(
    patches=patches(images)[:, :2],
    pooled=reduce(images, "b (h 2) (w 2) c -> b h w c", "max")[0, 0],
    means=reduce(images, "b h w c -> b c", "mean"),
    repeated=repeat(images[0, 0, :, 0], "w -> w k", k=2),
    product=einsum(images, weights, "b h w c, o c -> b o"),
    same=jnp.all(back == images),
    gradient=jax.grad(lambda x: reduce(x**2, "b h w c -> ", "sum"))(images)[0, 0],
)
