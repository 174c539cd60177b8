"""What primitives rewrite with: statements replaced and copied, loops substituted, nests placed, buffers laid out anew."""
