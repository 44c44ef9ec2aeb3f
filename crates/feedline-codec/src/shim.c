/* The C side of formats/jpeg.rs: libjpeg's error exits end here.
 *
 * In: bytes that may be hostile. Out: a status, and rows written where the caller says.
 *
 * Always true: every call into libjpeg happens below a setjmp of the same function, so no longjmp crosses a frame
 * of the caller or of a callback. An object is used by one thread at a time. After a function has returned something other than
 * FL_OK, only its message may be read and the object freed.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "jpeg_memory.c"

/* Kept equal to `Status` in formats/jpeg.rs. */
enum { FL_OK = 0, FL_DAMAGED = 1, FL_TRUNCATED = 2, FL_UNSUPPORTED = 3, FL_OUT_OF_MEMORY = 4 };

/* A file may repeat cheap scans without end, each of which costs a pass over the whole picture. */
#define MAX_SCANS 500

#define ROWS_PER_CALL 16

/* Writes the blocks of the next MCU, which are zero so far; 0 if there is none. */
typedef int (*fl_next_mcu)(void *from, JBLOCK *blocks);

typedef struct fl_jpeg {
  struct jpeg_decompress_struct cinfo;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  jmp_buf on_error;
  int status;
  int at_end; /* libjpeg requested bytes after the last one */
  int created;
  int buffered; /* several scans: all are read before the first row comes out */
  fl_next_mcu next_mcu;
  void *from;
  char message[JMSG_LENGTH_MAX];
} fl_jpeg;

typedef struct {
  uint32_t width, height, components;
} fl_info;

static int status_of(int code, int at_end) {
  switch (code) {
  case JERR_OUT_OF_MEMORY:
    return FL_OUT_OF_MEMORY;
  case JERR_SOF_UNSUPPORTED:
  case JERR_BAD_PRECISION:
  case JERR_CONVERSION_NOTIMPL:
  case JERR_CCIR601_NOTIMPL:
  case JERR_FRACT_SAMPLE_NOTIMPL:
  case JERR_NOT_COMPILED:
  case JERR_COMPONENT_COUNT:
    return FL_UNSUPPORTED;
  default:
    return at_end ? FL_TRUNCATED : FL_DAMAGED;
  }
}

static int fail(fl_jpeg *j, int status, const char *message) {
  j->status = status;
  snprintf(j->message, sizeof j->message, "%s", message);
  return status;
}

static void on_error_exit(j_common_ptr cinfo) {
  fl_jpeg *j = (fl_jpeg *)cinfo->client_data;
  j->status = status_of(cinfo->err->msg_code, j->at_end);
  cinfo->err->format_message(cinfo, j->message);
  longjmp(j->on_error, 1);
}

/* libjpeg only warns when it continues with invented pixels. Here that is an error. */
static void on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;
  switch (cinfo->err->msg_code) {
  case JWRN_EXTRANEOUS_DATA: /* bytes before a marker are skipped, nothing is lost */
  case JWRN_ADOBE_XFORM:
  case JWRN_JFIF_MAJOR:
  case JWRN_BOGUS_ICC:
    return;
  default:
    on_error_exit(cinfo);
  }
}

static void on_output(j_common_ptr cinfo) { (void)cinfo; }

static void source_nothing(j_decompress_ptr cinfo) { (void)cinfo; }

/* An end-of-image marker is offered instead of a warning: a file that lacks only that marker is whole. If bits are
 * missing, libjpeg says so itself when it meets the marker too early. */
static boolean source_fill(j_decompress_ptr cinfo) {
  static const JOCTET end_of_image[2] = {0xFF, JPEG_EOI};
  ((fl_jpeg *)cinfo->client_data)->at_end = 1;
  cinfo->src->next_input_byte = end_of_image;
  cinfo->src->bytes_in_buffer = sizeof end_of_image;
  return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long count) {
  struct jpeg_source_mgr *source = cinfo->src;
  if (count <= 0) return;
  if ((size_t)count > source->bytes_in_buffer) {
    source_fill(cinfo);
  } else {
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
  }
}

fl_jpeg *fl_jpeg_new(void) { return calloc(1, sizeof(fl_jpeg)); }

void fl_jpeg_free(fl_jpeg *j) {
  if (j->created) jpeg_destroy_decompress(&j->cinfo);
  free(j);
}

const char *fl_jpeg_message(const fl_jpeg *j) { return j->message; }

/* `data` must stay as it is until the object is freed. */
int fl_jpeg_header(fl_jpeg *j, const uint8_t *data, size_t length, fl_info *info) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  cinfo->err = jpeg_std_error(&j->errors);
  j->errors.error_exit = on_error_exit;
  j->errors.emit_message = on_message;
  j->errors.output_message = on_output;
  cinfo->client_data = j;
  if (setjmp(j->on_error)) return j->status;
  jpeg_create_decompress(cinfo);
  j->created = 1;
  cinfo->client_data = j;

  j->source.next_input_byte = data;
  j->source.bytes_in_buffer = length;
  j->source.init_source = source_nothing;
  j->source.fill_input_buffer = source_fill;
  j->source.skip_input_data = source_skip;
  j->source.resync_to_restart = jpeg_resync_to_restart;
  j->source.term_source = source_nothing;
  cinfo->src = &j->source;

  jpeg_read_header(cinfo, TRUE);
  if (cinfo->data_precision != 8) {
    snprintf(j->message, sizeof j->message, "%d bits per sample", cinfo->data_precision);
    return j->status = FL_UNSUPPORTED;
  }
  info->width = cinfo->image_width;
  info->height = cinfo->image_height;
  info->components = (uint32_t)cinfo->num_components;
  return FL_OK;
}

/* libjpeg's small transforms look at some coefficients of higher frequency. To multiply these by 0 makes a smaller
 * picture depend on its own frequencies only, so that a sender may leave out the others. */
static void drop_coefficients(struct jpeg_decompress_struct *cinfo, int kept) {
  int table, row, column;
  for (table = 0; table < NUM_QUANT_TBLS; table++) {
    if (cinfo->quant_tbl_ptrs[table] == NULL) continue;
    for (row = 0; row < 8; row++)
      for (column = 0; column < 8; column++)
        if (row >= kept || column >= kept) cinfo->quant_tbl_ptrs[table]->quantval[row * 8 + column] = 0;
  }
}

/* `divisor` 0 gives exact pixels, else approximate ones of so much smaller sides, whose size is written to `info`.
 * Rows come out as RGB, grey, or CMYK as stored; `components` says which. Memory for a file of several scans is bounded
 * by its size in pixels: two bytes for each coefficient, and padding. */
int fl_jpeg_start(fl_jpeg *j, int wants_grey, uint32_t divisor, fl_info *info, uint32_t *components) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  if (setjmp(j->on_error)) return j->status;
  switch (cinfo->jpeg_color_space) {
  case JCS_GRAYSCALE:
  case JCS_YCbCr:
  case JCS_RGB:
    cinfo->out_color_space = wants_grey ? JCS_GRAYSCALE : JCS_RGB;
    break;
  case JCS_CMYK:
  case JCS_YCCK:
    cinfo->out_color_space = JCS_CMYK;
    break;
  default:
    snprintf(j->message, sizeof j->message, "%d components of unknown colour", cinfo->num_components);
    return j->status = FL_UNSUPPORTED;
  }
  cinfo->dct_method = divisor == 0 ? JDCT_ISLOW : JDCT_IFAST;
  if (divisor > 1) {
    cinfo->scale_num = 1;
    cinfo->scale_denom = divisor;
    drop_coefficients(cinfo, (int)(8 / divisor));
  }
  cinfo->do_fancy_upsampling = TRUE;
  cinfo->mem->max_memory_to_use = (long)cinfo->image_width * (long)cinfo->image_height * 8 + (64L << 20);
  j->buffered = jpeg_has_multiple_scans(cinfo);
  cinfo->buffered_image = j->buffered ? TRUE : FALSE;
  jpeg_start_decompress(cinfo);
  info->width = cinfo->output_width;
  info->height = cinfo->output_height;
  *components = (uint32_t)cinfo->out_color_components;
  return FL_OK;
}

/* The first members of libjpeg-turbo's entropy decoder, which no installed header declares. */
#if LIBJPEG_TURBO_VERSION_NUMBER < 3000000 || LIBJPEG_TURBO_VERSION_NUMBER >= 4000000
#error "compare with struct jpeg_entropy_decoder in jpegint.h of this version"
#endif
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr cinfo);
  boolean (*decode_mcu)(j_decompress_ptr cinfo, JBLOCKROW *blocks);
};

/* Replaces libjpeg's own Huffman decoder. For skipped rows it gets no blocks. */
static boolean take_mcu(j_decompress_ptr cinfo, JBLOCKROW *blocks) {
  fl_jpeg *j = (fl_jpeg *)cinfo->client_data;
  int is_there = 1;
  if (blocks == NULL) {
    JBLOCK skipped[D_MAX_BLOCKS_IN_MCU];
    memset(skipped, 0, sizeof skipped);
    is_there = j->next_mcu(j->from, skipped);
  } else {
    int i;
    for (i = 1; i < cinfo->blocks_in_MCU; i++) is_there &= blocks[i] == blocks[0] + i;
    is_there = is_there && j->next_mcu(j->from, blocks[0]);
  }
  if (!is_there) {
    fail(j, FL_DAMAGED, "the data is no sequence of blocks");
    longjmp(j->on_error, 1);
  }
  return TRUE;
}

/* Coefficients come from `next`, MCUs of `blocks` blocks, instead of the file. Comes after fl_jpeg_start. */
int fl_jpeg_take(fl_jpeg *j, fl_next_mcu next, void *from, int blocks) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  if (j->buffered || cinfo->blocks_in_MCU != blocks) return fail(j, FL_DAMAGED, "the header is not that of the data");
  j->next_mcu = next;
  j->from = from;
  cinfo->entropy->decode_mcu = take_mcu;
  return FL_OK;
}

/* Reads up to `steps` rows of MCUs of a file of several scans; `is_done` is set when rows may be asked for. */
int fl_jpeg_consume(fl_jpeg *j, uint32_t steps, int *is_done) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  /* Volatile, as all that changes between setjmp and longjmp. */
  volatile uint32_t left = steps;
  *is_done = 0;
  if (!j->buffered) {
    *is_done = 1;
    return FL_OK;
  }
  if (setjmp(j->on_error)) return j->status;
  for (; left > 0; left--) {
    int event = jpeg_consume_input(cinfo);
    if (cinfo->input_scan_number > MAX_SCANS) return fail(j, FL_DAMAGED, "more than 500 scans");
    if (event == JPEG_REACHED_EOI) {
      if (j->at_end) return fail(j, FL_TRUNCATED, "the end-of-image marker is missing");
      jpeg_start_output(cinfo, cinfo->input_scan_number);
      *is_done = 1;
      return FL_OK;
    }
  }
  return FL_OK;
}

/* Narrows the output rows to columns around `left` .. `left + width`, which become those of whole MCUs, and goes to
 * row `top`. Comes after the last fl_jpeg_consume and before the first fl_jpeg_rows. */
int fl_jpeg_region(fl_jpeg *j, uint32_t *left, uint32_t *width, uint32_t top) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  JDIMENSION first = *left, count = *width;
  if (setjmp(j->on_error)) return j->status;
  if (first != 0 || count != cinfo->output_width) jpeg_crop_scanline(cinfo, &first, &count);
  if (top > 0 && jpeg_skip_scanlines(cinfo, top) != top) return fail(j, FL_DAMAGED, "rows end before the crop");
  *left = first;
  *width = cinfo->output_width;
  return FL_OK;
}

/* Writes `rows` rows, each `stride` bytes after the one before. */
int fl_jpeg_rows(fl_jpeg *j, uint8_t *target, size_t stride, uint32_t rows) {
  struct jpeg_decompress_struct *cinfo = &j->cinfo;
  JSAMPROW pointers[ROWS_PER_CALL];
  uint32_t done = 0;
  JDIMENSION end = cinfo->output_scanline + rows;
  if (end > cinfo->output_height || end < rows) return fail(j, FL_DAMAGED, "rows behind the last one were asked for");
  if (setjmp(j->on_error)) return j->status;
  while (cinfo->output_scanline < end) {
    uint32_t left = end - cinfo->output_scanline, count = left < ROWS_PER_CALL ? left : ROWS_PER_CALL, i;
    done = rows - left;
    for (i = 0; i < count; i++) pointers[i] = target + (size_t)(done + i) * stride;
    if (jpeg_read_scanlines(cinfo, pointers, count) == 0) return fail(j, FL_DAMAGED, "no further row");
  }
  /* The arithmetic decoder continues with zeros without a warning. */
  if (cinfo->output_scanline == cinfo->output_height && cinfo->arith_code && j->at_end)
    return fail(j, FL_TRUNCATED, "the end-of-image marker is missing");
  return FL_OK;
}

typedef struct {
  struct jpeg_compress_struct cinfo;
  struct jpeg_error_mgr errors;
  jmp_buf on_error;
  unsigned char *bytes;
  unsigned long length;
} fl_encoder;

static void on_encode_error(j_common_ptr cinfo) { longjmp(((fl_encoder *)cinfo->client_data)->on_error, 1); }

static void on_encode_message(j_common_ptr cinfo, int level) {
  (void)cinfo;
  (void)level;
}

#define MAX_BANDS 8
#define MAX_REFINED 8
#define SCRIPT_SCANS (MAX_COMPS_IN_SCAN * (MAX_BANDS + 1) * (MAX_REFINED + 1))

static jpeg_scan_info scan_of(int component, int first, int last, int high, int low) {
  jpeg_scan_info scan = {1, {component, 0, 0, 0}, first, last, high, low};
  return scan;
}

/* All coefficients but their last `refined` bits, AC in `bands` scans, then bit after bit. DC coefficients of all
 * components share a scan if `bands` is odd. Returns the number of scans. */
static int make_script(jpeg_scan_info *scans, int components, int bands, int refined) {
  int count = 0, low, component, band;
  for (low = refined; low >= 0; low--) {
    int high = low == refined ? 0 : low + 1;
    for (component = 0; component < (bands % 2 ? 1 : components); component++) {
      scans[count] = scan_of(component, 0, 0, high, low);
      if (bands % 2) {
        scans[count].comps_in_scan = components;
        for (band = 0; band < components; band++) scans[count].component_index[band] = band;
      }
      count++;
    }
    for (band = 0; band < bands; band++)
      for (component = 0; component < components; component++)
        scans[count++] = scan_of(component, 1 + 63 * band / bands, 63 * (band + 1) / bands, high, low);
  }
  return count;
}

/* `coding`: 0 baseline, 1 progressive, 2 arithmetic, 3 tables of its own, 4 extended, 5 progressive with `bands` and
 * `refined` for make_script; `restarts`: MCUs between two. The bytes are freed with fl_jpeg_free_bytes. Returns FL_OK or
 * not. */
int fl_jpeg_encode(const uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels, int quality,
                   int sampling_x, int sampling_y, int coding, int restarts, int bands, int refined, uint8_t **bytes,
                   size_t *length) {
  jpeg_scan_info script[SCRIPT_SCANS];
  fl_encoder *e = calloc(1, sizeof *e);
  struct jpeg_compress_struct *cinfo;
  if (e == NULL) return FL_OUT_OF_MEMORY;
  cinfo = &e->cinfo;
  cinfo->err = jpeg_std_error(&e->errors);
  e->errors.error_exit = on_encode_error;
  e->errors.emit_message = on_encode_message;
  e->errors.output_message = on_output;
  cinfo->client_data = e;
  if (setjmp(e->on_error)) {
    jpeg_destroy_compress(&e->cinfo);
    free(e->bytes);
    free(e);
    return FL_UNSUPPORTED;
  }
  jpeg_create_compress(cinfo);
  cinfo->client_data = e;
  jpeg_mem_dest(cinfo, &e->bytes, &e->length);
  cinfo->image_width = width;
  cinfo->image_height = height;
  cinfo->input_components = (int)channels;
  cinfo->in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(cinfo);
  if (channels == 4) jpeg_set_colorspace(cinfo, JCS_YCCK);
  if (sampling_x == 0) jpeg_set_colorspace(cinfo, JCS_GRAYSCALE);
  jpeg_set_quality(cinfo, quality, coding == 4 ? FALSE : TRUE);
  if (sampling_x > 0 && channels > 1) {
    cinfo->comp_info[0].h_samp_factor = sampling_x;
    cinfo->comp_info[0].v_samp_factor = sampling_y;
    if (channels == 4) {
      cinfo->comp_info[3].h_samp_factor = sampling_x;
      cinfo->comp_info[3].v_samp_factor = sampling_y;
    }
  }
  if (coding == 1) jpeg_simple_progression(cinfo);
  if (coding == 5) {
    if (bands < 1 || bands > MAX_BANDS || refined < 0 || refined > MAX_REFINED) ERREXIT(cinfo, JERR_BAD_PROGRESSION);
    cinfo->num_scans = make_script(script, cinfo->num_components, bands, refined);
    cinfo->scan_info = script;
  }
  if (coding == 2) cinfo->arith_code = TRUE;
  if (coding == 3) cinfo->optimize_coding = TRUE;
  cinfo->restart_interval = (unsigned)restarts;
  jpeg_start_compress(cinfo, TRUE);
  while (cinfo->next_scanline < cinfo->image_height) {
    JSAMPROW row = (JSAMPROW)(pixels + (size_t)cinfo->next_scanline * width * channels);
    jpeg_write_scanlines(cinfo, &row, 1);
  }
  jpeg_finish_compress(cinfo);
  jpeg_destroy_compress(cinfo);
  *bytes = e->bytes;
  *length = e->length;
  free(e);
  return FL_OK;
}

void fl_jpeg_free_bytes(uint8_t *bytes) { free(bytes); }
