/* The memory functions of libjpeg, which every port of libjpeg may replace.
 *
 * The library's default takes all memory from malloc, which keeps the coefficients of large pictures in one arena per
 * thread. Here large pieces are mapped, so they go back to the system when they are freed. Part of the same object file as
 * the shim, so that the linker has these names before it looks into the library.
 */
#include <sys/mman.h>

#define MIN_MAPPED ((size_t)1 << 20)

void *jpeg_get_small(j_common_ptr cinfo, size_t size) { (void)cinfo; return malloc(size); }

void jpeg_free_small(j_common_ptr cinfo, void *piece, size_t size) { (void)cinfo; (void)size; free(piece); }

void *jpeg_get_large(j_common_ptr cinfo, size_t size) {
  void *piece;
  (void)cinfo;
  if (size < MIN_MAPPED) return malloc(size);
  piece = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return piece == MAP_FAILED ? NULL : piece;
}

void jpeg_free_large(j_common_ptr cinfo, void *piece, size_t size) {
  (void)cinfo;
  if (size < MIN_MAPPED) free(piece);
  else munmap(piece, size);
}

/* There is no limit here: callers check the size of a picture before they start. */
size_t jpeg_mem_available(j_common_ptr cinfo, size_t least, size_t most, size_t used) {
  (void)cinfo; (void)least; (void)used;
  return most;
}

/* Never called, because all memory asked for is available. */
void jpeg_open_backing_store(j_common_ptr cinfo, void *info, long size) {
  (void)info; (void)size;
  ERREXIT(cinfo, JERR_NO_BACKING_STORE);
}

long jpeg_mem_init(j_common_ptr cinfo) { (void)cinfo; return 0; }

void jpeg_mem_term(j_common_ptr cinfo) { (void)cinfo; }
