// The table of one jitted function, from signature to program. Guarded by the GIL.
//
// Open addressing with linear probing. A header because only jit.cpp uses it, and the lookups of a call are inlined.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "jit.h"

namespace weft {
namespace {

constexpr uint32_t kMaxEntries = 4096;
constexpr uint32_t kFirstSlots = 4;

Entry* g_no_slots[1] = {nullptr};  // the table of a function without signatures
// Entries in all tables now, entries ever installed, and entries removed with their program (retired or cleared).
unsigned long long g_entries = 0, g_installed = 0, g_retired = 0;

void entry_release(Entry* entry) {
  if (--entry->references != 0) return;
  for (PyObject* object : entry->owned) Py_DECREF(object);
  for (PyObject* object : entry->compared) Py_DECREF(object);
  Py_XDECREF(entry->cached);
  delete entry;
}

// Whether the static values and unusual keys are equal: 1, 0, or -1 with an error set. May run Python code.
int same_objects(const Entry* entry, const Signature& signature) {
  const auto& compared = signature.compared();
  for (uint32_t i = 0; i < compared.size(); ++i) {
    PyObject *known = entry->compared[i], *given = compared[i];
    if (known == given) continue;
    if (Py_TYPE(known) != Py_TYPE(given)) return 0;
    int equal = in_python<PyObject_RichCompareBool>(known, given, Py_EQ);
    if (equal != 1) return equal;
  }
  return 1;
}

// Borrowed entry with this signature, or nullptr (with an error set if a comparison raised).
Entry* table_find(JitFunction* self, const Signature& signature) {
  for (;;) {
    uint64_t version = self->version;
    bool restart = false;
    for (uint32_t i = uint32_t(signature.hash()) & self->mask; self->slots[i] != nullptr; i = (i + 1) & self->mask) {
      Entry* entry = self->slots[i];
      if (entry->hash != signature.hash() || entry->tokens.size() != signature.tokens().size()) continue;
      if (std::memcmp(entry->tokens.data(), signature.tokens().data(), entry->tokens.size() * 8) != 0) continue;
      if (signature.compared().size() == 0) return entry;
      if (entry->compared.size() != signature.compared().size()) continue;
      ++entry->references;
      int same = same_objects(entry, signature);
      entry_release(entry);
      if (same < 0) return nullptr;
      restart = version != self->version;  // the comparison ran code that changed the table
      if (restart) break;
      if (same == 1) return entry;
    }
    if (!restart) return nullptr;
  }
}

void table_insert_slot(JitFunction* self, Entry* entry) {
  uint32_t i = uint32_t(entry->hash) & self->mask;
  while (self->slots[i] != nullptr) i = (i + 1) & self->mask;
  self->slots[i] = entry;
}

// Records in the CacheEntry that this table holds it, so that a program can be removed from all tables.
void note_holder(JitFunction* self, Entry* entry) {
  auto& holders = *entry->cached->holders;
  entry->holder = holders.size();
  holders.emplace_back(self, entry);
  ++g_entries;
  ++g_installed;
}

void forget_holder(Entry* entry) {
  auto& holders = *entry->cached->holders;
  holders[entry->holder] = holders.back();
  holders[entry->holder].second->holder = entry->holder;
  holders.pop_back();
  --g_entries;
}

// Removes an entry; the caller gets the table's reference. Later entries of the same run of slots move up.
void table_remove(JitFunction* self, Entry* entry) {
  uint32_t hole = uint32_t(entry->hash) & self->mask;
  while (self->slots[hole] != entry) hole = (hole + 1) & self->mask;
  for (uint32_t i = (hole + 1) & self->mask; self->slots[i] != nullptr; i = (i + 1) & self->mask) {
    uint32_t home = uint32_t(self->slots[i]->hash) & self->mask;
    if (((i - home) & self->mask) < ((i - hole) & self->mask)) continue;  // its preferred slot lies behind the hole
    self->slots[hole] = self->slots[i];
    hole = i;
  }
  self->slots[hole] = nullptr;
  --self->count;
  ++self->version;
  forget_holder(entry);
}

void free_slots(Entry** slots) {
  if (slots != g_no_slots) std::free(slots);
}

// Moves the entries into a table twice as large.
bool table_grow(JitFunction* self) {
  uint32_t capacity = std::max(kFirstSlots, (self->mask + 1) * 2);
  Entry** slots = static_cast<Entry**>(std::calloc(capacity, sizeof(Entry*)));
  if (slots == nullptr) return false;
  Entry** old = self->slots;
  uint32_t old_capacity = self->mask + 1;
  self->slots = slots;
  self->mask = capacity - 1;
  ++self->version;
  for (uint32_t i = 0; i < old_capacity; ++i)
    if (old[i] != nullptr) table_insert_slot(self, old[i]);
  free_slots(old);
  return true;
}

Entry* oldest(JitFunction* self) {
  Entry* result = nullptr;
  for (uint32_t i = 0; i <= self->mask; ++i)
    if (Entry* entry = self->slots[i]; entry != nullptr && (result == nullptr || entry->age < result->age))
      result = entry;
  return result;
}

// Steals entry. The table holds at most kMaxEntries; the oldest one is dropped.
bool table_install(JitFunction* self, const Signature& signature, Entry* entry) {
  Entry* known = table_find(self, signature);  // a re-entrant call may have installed it meanwhile
  if (known == nullptr && PyErr_Occurred()) {
    entry_release(entry);
    return false;
  }
  Entry* drop = known != nullptr ? known : self->count >= kMaxEntries ? oldest(self) : nullptr;
  bool grow = drop == nullptr && (self->count + 1) * 2 > self->mask + 1;
  if (grow && !table_grow(self)) {
    entry_release(entry);
    PyErr_NoMemory();
    return false;
  }
  if (drop != nullptr) table_remove(self, drop);
  entry->age = self->next_age++;
  note_holder(self, entry);
  table_insert_slot(self, entry);
  ++self->version;
  ++self->count;
  if (drop != nullptr) entry_release(drop);  // last, since it may run destructors
  return true;
}

void table_clear(JitFunction* self) {
  Entry** old = self->slots;
  uint32_t capacity = self->mask + 1;
  self->slots = g_no_slots;
  self->mask = 0;
  self->count = 0;
  ++self->version;
  for (uint32_t i = 0; i < capacity; ++i)
    if (old[i] != nullptr) forget_holder(old[i]);
  for (uint32_t i = 0; i < capacity; ++i)
    if (old[i] != nullptr) entry_release(old[i]);
  free_slots(old);
}

}  // namespace
}  // namespace weft
