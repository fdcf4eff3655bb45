package vsphere

// Memory is how much a Platform remembers.
type Memory struct{ Records, Clones, Alarms, Endpoints, Tracked int }

// Memory returns how much p remembers now.
func (p *Platform) Memory() Memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := Memory{Records: len(p.records), Clones: len(p.clones), Endpoints: len(p.endpoints)}
	p.wakes.mu.Lock()
	m.Alarms = len(p.wakes.alarms)
	p.wakes.mu.Unlock()
	for _, e := range p.endpoints {
		e.mu.Lock()
		if s := e.session; s != nil {
			s.watch.mu.Lock()
			m.Tracked += len(s.watch.objects)
			s.watch.mu.Unlock()
		}
		e.mu.Unlock()
	}
	return m
}
