/* small: the network `small`, compiled by tir for znver3.
   Link with small.o -lm.
   weights are the SMALL_WEIGHTS_BYTES bytes of the file small.weights, read-only, as
   mmap(NULL, SMALL_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, open("small.weights", O_RDONLY), 0) gives them;
   arena is memory for this call alone, as aligned_alloc(SMALL_ALIGNMENT, SMALL_ARENA_BYTES) gives it.
   Both begin at a multiple of SMALL_ALIGNMENT.
   Arrays are row-major without gaps, each aligned to its elements; one that is written overlaps no other.
   It returns 0; or 1 if there is no memory for its temporaries, and the results are then undefined. */

#ifndef TIR_SMALL_H
#define TIR_SMALL_H

#ifdef __cplusplus
extern "C" {
#endif

#define SMALL_WEIGHTS_BYTES 12288
#define SMALL_ARENA_BYTES 11520
#define SMALL_ALIGNMENT 64

/*
   weights[SMALL_WEIGHTS_BYTES]  read
   arena[SMALL_ARENA_BYTES]      written
   image[1][3][29][23]           read
   scores[1][10]                 written
*/
int small(const void *weights, void *arena, const float *image, float *scores);

#ifdef __cplusplus
}
#endif

#endif
