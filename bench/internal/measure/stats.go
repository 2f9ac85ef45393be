package measure

import (
	"math"
	"slices"
)

// Median returns the median of the numbers that are none of NaN; NaN if there
// are none.
func Median(xs []float64) float64 {
	xs = slices.DeleteFunc(slices.Clone(xs), math.IsNaN)
	if len(xs) == 0 {
		return math.NaN()
	}
	slices.Sort(xs)
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return (xs[mid-1] + xs[mid]) / 2
}

// Jain returns the fairness index of shares: 1 if all are equal, 1/n if one
// has everything; NaN if nobody has anything.
func Jain(shares []int64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if sum == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(shares)) * squares)
}
