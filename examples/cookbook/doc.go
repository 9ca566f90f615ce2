// Package cookbook holds recipes: examples of what is wanted now and then. Each runs as a
// test. The pages in docs quote them.
package cookbook
