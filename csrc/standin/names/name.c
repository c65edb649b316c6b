/* libcuda.so and libnvidia-ml.so: they only refer to the library of that name with .1, so that the dynamic
 * linker loads it and finds its functions through them. Exported, or the linker would drop the reference. */
extern char REFERENCE[];
extern void *const standin_needs;
__attribute__((visibility("default"))) void *const standin_needs = REFERENCE;
