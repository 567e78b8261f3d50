"""Keras on its JAX backend: a network fitted, evaluated and saved as weights, and layers of several kinds."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from results import show

keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
x = generator.normal(size=(64, 4)).astype("float32")
y = (x[:, :1] * 2 - x[:, 1:2]).astype("float32")
model = keras.Sequential([
    keras.layers.Input((4,)),
    keras.layers.Dense(8, activation="tanh", kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
    keras.layers.LayerNormalization(),
    keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=2)),
])  # fmt: skip
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
images = generator.normal(size=(2, 8, 8, 3)).astype("float32")
convolution = keras.layers.Conv2D(4, 3, kernel_initializer=keras.initializers.HeNormal(seed=3))
recurrent = keras.layers.LSTM(
    5, kernel_initializer=keras.initializers.GlorotUniform(seed=4), recurrent_initializer=keras.initializers.Identity()
)
show(
    losses=np.array(history.history["loss"]),
    evaluated=np.array(model.evaluate(x, y, verbose=0)),
    predicted=model.predict(x[:4], verbose=0),
    convolved=np.asarray(keras.layers.MaxPooling2D()(convolution(images)))[0, 0],
    recurrent=np.asarray(recurrent(images[:, :, :, 0])),
    softmax=np.asarray(keras.ops.softmax(x[:2])),
    einsum=np.asarray(keras.ops.einsum("ij,kj->ik", x[:2], x[:3])),
    on_jax=keras.backend.backend() == "jax" and isinstance(keras.ops.ones(1), jax.Array),
)
