/* product: the kernel `main`, compiled by tir for x86-64-v4.
   Link with product.o -lm.
   Arrays are row-major without gaps, each aligned to its elements; one that is written overlaps no other.
   It returns 0; or 1 if there is no memory for its temporaries, and the results are then undefined. */

#ifndef TIR_PRODUCT_H
#define TIR_PRODUCT_H

#ifdef __cplusplus
extern "C" {
#endif

/*
   A[96][109]   read
   B[109][192]  read
   C[96][192]   written
*/
int product(const float *A, const float *B, float *C);

#ifdef __cplusplus
}
#endif

#endif
