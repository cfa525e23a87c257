#pragma once

void demand(bool right, const char* what, const char* file, int line);
#define DEMAND(condition) demand(condition, #condition, __FILE__, __LINE__)

void warp_operations();
void tensor_core_fragments();
void shared_memory();
void block_shapes_and_atomics();
void memory_calls();
void stream_order();
void staging_ring();
void event_queries();
void syntax();
void bank_conflicts();
void counters_and_properties();
