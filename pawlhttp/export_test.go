package pawlhttp

import (
	"maps"
	"slices"
)

// Paths returns what is served.
func Paths(s *Server) []string { return slices.Sorted(maps.Keys(s.routes)) }
