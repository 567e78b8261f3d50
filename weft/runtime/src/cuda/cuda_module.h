// Kernels of a GPU as Python objects: an image (PTX or machine code) and the names of its entries.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_device.h"

namespace weft {

struct DeviceModule {
  PyObject_HEAD
  struct Images* images;  // owned
};

extern PyTypeObject* DeviceModuleType;

// The function of an entry on a device, into which the module is loaded when this is first asked; nullptr: explain raises.
cuda::Handle module_function(DeviceModule* module, CudaDevice& device, const std::string& entry, int64_t shared_bytes);

// Whether the module says that it has the entry.
bool module_has(const DeviceModule* module, const std::string& entry);

}  // namespace weft
