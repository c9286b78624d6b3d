package controllers

import (
	"testing"
	"time"
)

func TestOverlapIsADay(t *testing.T) {
	if defaultOverlap != 24*time.Hour {
		t.Errorf("without spec.overlap a superseded CA stays for %s, and the documents say a day", defaultOverlap)
	}
}
